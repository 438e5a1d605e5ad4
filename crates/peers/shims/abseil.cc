// absl::Mutex

#include <cstring>
#include <new>

#include "absl/synchronization/mutex.h"
#include "peer.h"

namespace {

void init(void *lock)
{
	new (lock) absl::Mutex;
}

void lock(void *lock, void *)
{
	static_cast<absl::Mutex *>(lock)->Lock();
}

void unlock(void *lock, void *)
{
	static_cast<absl::Mutex *>(lock)->Unlock();
}

void destroy(void *lock)
{
	static_cast<absl::Mutex *>(lock)->~Mutex();
}

} // namespace

int poundlock_peer(const char *name, const poundlock_topology *, poundlock_calls *calls)
{
	if (std::strcmp(name, "abseil") != 0)
		return -1;
	// A library that was not built as a release has these on.
	absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
	absl::EnableMutexInvariantDebugging(false);
	*calls = {sizeof(absl::Mutex), alignof(absl::Mutex), 0, init, lock, unlock, destroy};
	return 0;
}
