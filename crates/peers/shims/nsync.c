/* nsync_mu */

#include <string.h>

#include <nsync.h>

#include "peer.h"

static void init(void *lock)
{
	nsync_mu_init(lock);
}

static void lock(void *lock, void *node)
{
	(void)node;
	nsync_mu_lock(lock);
}

static void unlock(void *lock, void *node)
{
	(void)node;
	nsync_mu_unlock(lock);
}

static void read_lock(void *lock, void *node)
{
	(void)node;
	nsync_mu_rlock(lock);
}

static void read_unlock(void *lock, void *node)
{
	(void)node;
	nsync_mu_runlock(lock);
}

/* Nothing belongs to a free nsync_mu. */
static void destroy(void *lock)
{
	(void)lock;
}

int poundlock_peer(const char *name, const struct poundlock_topology *topology, struct poundlock_calls *calls)
{
	(void)topology;
	if (strcmp(name, "nsync") != 0)
		return -1;
	*calls = (struct poundlock_calls){
		.size = sizeof(nsync_mu),
		.align = _Alignof(nsync_mu),
		.init = init,
		.lock = lock,
		.unlock = unlock,
		.destroy = destroy,
	};
	return 0;
}

/* The same lock: a mutex that can be shared. */
int poundlock_rw_peer(const char *name, struct poundlock_rw_calls *calls)
{
	calls->read_lock = read_lock;
	calls->read_unlock = read_unlock;
	return poundlock_peer(name, NULL, &calls->write);
}
