// tbb::mutex, tbb::queuing_mutex, tbb::spin_mutex, and tbb::rw_mutex, tbb::queuing_rw_mutex, tbb::spin_rw_mutex

#include <cstring>
#include <new>

#include <oneapi/tbb/mutex.h>
#include <oneapi/tbb/queuing_mutex.h>
#include <oneapi/tbb/queuing_rw_mutex.h>
#include <oneapi/tbb/rw_mutex.h>
#include <oneapi/tbb/spin_mutex.h>
#include <oneapi/tbb/spin_rw_mutex.h>

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

template <typename Mutex> void read_lock(void *lock, void *)
{
	static_cast<Mutex *>(lock)->lock_shared();
}

template <typename Mutex> void read_unlock(void *lock, void *)
{
	static_cast<Mutex *>(lock)->unlock_shared();
}

template <typename Mutex> poundlock_rw_calls sharing()
{
	return {plain<Mutex>(), read_lock<Mutex>, read_unlock<Mutex>};
}

using RwScoped = tbb::queuing_rw_mutex::scoped_lock;
static_assert(alignof(RwScoped) <= 64, "a node has no more");

template <bool write> void rw_lock_scoped(void *lock, void *node)
{
	new (node) RwScoped(*static_cast<tbb::queuing_rw_mutex *>(lock), write);
}

void rw_unlock_scoped(void *, void *node)
{
	static_cast<RwScoped *>(node)->~RwScoped();
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

int poundlock_rw_peer(const char *name, poundlock_rw_calls *calls)
{
	using Queuing = tbb::queuing_rw_mutex;
	if (std::strcmp(name, "onetbb") == 0)
		*calls = sharing<tbb::rw_mutex>();
	else if (std::strcmp(name, "onetbb-spin") == 0)
		*calls = sharing<tbb::spin_rw_mutex>();
	else if (std::strcmp(name, "onetbb-queuing") == 0)
		*calls = {{sizeof(Queuing), alignof(Queuing), sizeof(RwScoped), init<Queuing>, rw_lock_scoped<true>,
			   rw_unlock_scoped, destroy<Queuing>},
			  rw_lock_scoped<false>,
			  rw_unlock_scoped};
	else
		return -1;
	return 0;
}
