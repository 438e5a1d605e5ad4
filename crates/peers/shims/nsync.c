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
