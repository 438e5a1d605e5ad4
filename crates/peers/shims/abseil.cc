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

void read_lock(void *lock, void *)
{
	static_cast<absl::Mutex *>(lock)->ReaderLock();
}

void read_unlock(void *lock, void *)
{
	static_cast<absl::Mutex *>(lock)->ReaderUnlock();
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

// The same lock: a mutex that can be shared.
int poundlock_rw_peer(const char *name, poundlock_rw_calls *calls)
{
	calls->read_lock = read_lock;
	calls->read_unlock = read_unlock;
	return poundlock_peer(name, nullptr, &calls->write);
}
