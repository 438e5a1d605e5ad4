// tbb::mutex, tbb::queuing_mutex, tbb::spin_mutex

#include <cstring>
#include <new>

#include <oneapi/tbb/mutex.h>
#include <oneapi/tbb/queuing_mutex.h>
#include <oneapi/tbb/spin_mutex.h>

#include "peer.h"

namespace {

template <typename Mutex> void init(void *lock)
{
	new (lock) Mutex;
}

template <typename Mutex> void destroy(void *lock)
{
	static_cast<Mutex *>(lock)->~Mutex();
}

template <typename Mutex> void lock(void *lock, void *)
{
	static_cast<Mutex *>(lock)->lock();
}

template <typename Mutex> void unlock(void *lock, void *)
{
	static_cast<Mutex *>(lock)->unlock();
}

// The queue of a queuing mutex is made of its scoped locks: one lives in the node from the lock to the unlock.
using Scoped = tbb::queuing_mutex::scoped_lock;
static_assert(alignof(Scoped) <= 64, "a node has no more");

void lock_scoped(void *lock, void *node)
{
	new (node) Scoped(*static_cast<tbb::queuing_mutex *>(lock));
}

void unlock_scoped(void *, void *node)
{
	static_cast<Scoped *>(node)->~Scoped();
}

template <typename Mutex> poundlock_calls plain()
{
	return {sizeof(Mutex), alignof(Mutex), 0, init<Mutex>, lock<Mutex>, unlock<Mutex>, destroy<Mutex>};
}

} // namespace

int poundlock_peer(const char *name, const poundlock_topology *, poundlock_calls *calls)
{
	using Queuing = tbb::queuing_mutex;
	if (std::strcmp(name, "onetbb") == 0)
		*calls = plain<tbb::mutex>();
	else if (std::strcmp(name, "onetbb-spin") == 0)
		*calls = plain<tbb::spin_mutex>();
	else if (std::strcmp(name, "onetbb-queuing") == 0)
		*calls = {sizeof(Queuing), alignof(Queuing), sizeof(Scoped),   init<Queuing>,
			  lock_scoped,     unlock_scoped,    destroy<Queuing>};
	else
		return -1;
	return 0;
}
