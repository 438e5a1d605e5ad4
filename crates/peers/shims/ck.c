/* Concurrency Kit's MCS, CLH, ticket and cohort locks, and its readers-writer locks */

#define _GNU_SOURCE
#include <sched.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include <ck_cohort.h>
#include <ck_pflock.h>
#include <ck_rwlock.h>
#include <ck_spinlock.h>
#include <ck_tflock.h>

#include "peer.h"

/* Adjacent lines are fetched together. */
#define APART 128

static void nothing(void *lock)
{
	(void)lock;
}

/* MCS: the thread's node is its place in the queue. */

static void mcs_init(void *lock)
{
	ck_spinlock_mcs_init(lock);
}

static void mcs_lock(void *lock, void *node)
{
	ck_spinlock_mcs_lock(lock, node);
}

static void mcs_unlock(void *lock, void *node)
{
	ck_spinlock_mcs_unlock(lock, node);
}

/*
 * CLH: a thread waits on its predecessor's place and keeps that afterwards, so a place outlives the thread
 * that brought it. Here the thread's node names a place from the heap, which it gets when it first locks. The
 * place that a lock is left with ends with the lock. The one that a thread is left with, a pair of lines,
 * stays: nobody says when a node goes away.
 */

static ck_spinlock_clh_t *clh_place(void)
{
	ck_spinlock_clh_t *place = aligned_alloc(APART, (sizeof(*place) + APART - 1) / APART * APART);

	if (place == NULL)
		abort();
	return place;
}

static void clh_init(void *lock)
{
	ck_spinlock_clh_init(lock, clh_place());
}

/* Apart, so that the function below needs no stack. */
__attribute__((noinline, cold)) static void clh_lock_first(void *lock, ck_spinlock_clh_t **own)
{
	*own = clh_place();
	ck_spinlock_clh_lock(lock, *own);
}

static void clh_lock(void *lock, void *node)
{
	ck_spinlock_clh_t **own = node;

	if (CK_CC_LIKELY(*own != NULL))
		ck_spinlock_clh_lock(lock, *own);
	else
		clh_lock_first(lock, own);
}

static void clh_unlock(void *lock, void *node)
{
	(void)lock;
	ck_spinlock_clh_unlock(node);
}

static void clh_destroy(void *lock)
{
	ck_spinlock_clh_t **tail = lock;

	free(*tail);
}

/* Ticket */

static void ticket_init(void *lock)
{
	ck_spinlock_ticket_init(lock);
}

static void ticket_lock(void *lock, void *node)
{
	(void)node;
	ck_spinlock_ticket_lock(lock);
}

static void ticket_unlock(void *lock, void *node)
{
	(void)node;
	ck_spinlock_ticket_unlock(lock);
}

static bool ticket_locked(void *lock, void *node)
{
	(void)node;
	return ck_spinlock_ticket_locked(lock);
}

/*
 * Cohort: ticket locks at both levels (C-TKT-TKT in Dice, Marathe and Shavit, PPoPP 2012): threads of a NUMA
 * node compete for the node's lock, and its holder for the one above, which stays with the node for a bounded
 * number of acquisitions. A thread may be on another node when it unlocks, so it notes whose lock it has.
 */

CK_COHORT_PROTOTYPE(peer, ticket_lock, ticket_unlock, ticket_locked, ticket_lock, ticket_unlock,
                    ticket_locked)

struct cohort {
	alignas(APART) CK_COHORT_INSTANCE(peer) cohort;
	alignas(APART) ck_spinlock_ticket_t local;
};

struct cohorts {
	alignas(APART) ck_spinlock_ticket_t global;
	struct cohort of_node[];
};

/* Set before anybody can have a cohort lock. */
static const struct poundlock_topology *machine;

static void cohort_init(void *lock)
{
	struct cohorts *cohorts = lock;
	const struct poundlock_topology *topology = ck_pr_load_ptr(&machine);

	ck_spinlock_ticket_init(&cohorts->global);
	for (uint32_t node = 0; node < topology->nodes; node++) {
		struct cohort *cohort = &cohorts->of_node[node];

		ck_spinlock_ticket_init(&cohort->local);
		CK_COHORT_INIT(peer, &cohort->cohort, &cohorts->global, &cohort->local,
			       CK_COHORT_DEFAULT_LOCAL_PASS_LIMIT);
	}
}

static void cohort_lock(void *lock, void *node)
{
	struct cohorts *cohorts = lock;
	struct cohort **mine = node;
	const struct poundlock_topology *topology = ck_pr_load_ptr(&machine);
	int cpu = sched_getcpu();

	*mine = &cohorts->of_node[cpu >= 0 && (uint32_t)cpu < topology->cpus ? topology->node_of_cpu[cpu] : 0];
	CK_COHORT_LOCK(peer, &(*mine)->cohort, NULL, NULL);
}

static void cohort_unlock(void *lock, void *node)
{
	struct cohort **mine = node;

	(void)lock;
	CK_COHORT_UNLOCK(peer, &(*mine)->cohort, NULL, NULL);
}

int poundlock_peer(const char *name, const struct poundlock_topology *topology, struct poundlock_calls *calls)
{
	if (strcmp(name, "ck-mcs") == 0) {
		*calls = (struct poundlock_calls){
			.size = sizeof(ck_spinlock_mcs_t),
			.align = alignof(ck_spinlock_mcs_t),
			.node = sizeof(ck_spinlock_mcs_context_t),
			.init = mcs_init,
			.lock = mcs_lock,
			.unlock = mcs_unlock,
			.destroy = nothing,
		};
	} else if (strcmp(name, "ck-clh") == 0) {
		*calls = (struct poundlock_calls){
			.size = sizeof(ck_spinlock_clh_t *),
			.align = alignof(ck_spinlock_clh_t *),
			.node = sizeof(ck_spinlock_clh_t *),
			.init = clh_init,
			.lock = clh_lock,
			.unlock = clh_unlock,
			.destroy = clh_destroy,
		};
	} else if (strcmp(name, "ck-ticket") == 0) {
		*calls = (struct poundlock_calls){
			.size = sizeof(ck_spinlock_ticket_t),
			.align = alignof(ck_spinlock_ticket_t),
			.init = ticket_init,
			.lock = ticket_lock,
			.unlock = ticket_unlock,
			.destroy = nothing,
		};
	} else if (strcmp(name, "ck-cohort") == 0) {
		ck_pr_store_ptr(&machine, topology);
		*calls = (struct poundlock_calls){
			.size = sizeof(struct cohorts) + topology->nodes * sizeof(struct cohort),
			.align = alignof(struct cohorts),
			.node = sizeof(struct cohort *),
			.init = cohort_init,
			.lock = cohort_lock,
			.unlock = cohort_unlock,
			.destroy = nothing,
		};
	} else {
		return -1;
	}
	return 0;
}

/* Readers and writers */

#define READERS_WRITER(name, type, functions) \
	static void name##_init(void *lock) \
	{ \
		functions##_init(lock); \
	} \
	static void name##_write_lock(void *lock, void *node) \
	{ \
		(void)node; \
		functions##_write_lock(lock); \
	} \
	static void name##_write_unlock(void *lock, void *node) \
	{ \
		(void)node; \
		functions##_write_unlock(lock); \
	} \
	static void name##_read_lock(void *lock, void *node) \
	{ \
		(void)node; \
		functions##_read_lock(lock); \
	} \
	static void name##_read_unlock(void *lock, void *node) \
	{ \
		(void)node; \
		functions##_read_unlock(lock); \
	} \
	static const struct poundlock_rw_calls name = { \
		.write = \
			{                                                                                              \
				.size = sizeof(type),                                                                  \
				.align = alignof(type),                                                                \
				.init = name##_init,                                                                   \
				.lock = name##_write_lock,                                                             \
				.unlock = name##_write_unlock,                                                         \
				.destroy = nothing,                                                                    \
			},                                                                                             \
		.read_lock = name##_read_lock, \
		.read_unlock = name##_read_unlock, \
	}

READERS_WRITER(rwlock, ck_rwlock_t, ck_rwlock);
READERS_WRITER(pflock, ck_pflock_t, ck_pflock);
READERS_WRITER(tflock, ck_tflock_ticket_t, ck_tflock_ticket);

int poundlock_rw_peer(const char *name, struct poundlock_rw_calls *calls)
{
	if (strcmp(name, "ck-rwlock") == 0)
		*calls = rwlock;
	else if (strcmp(name, "ck-pflock") == 0)
		*calls = pflock;
	else if (strcmp(name, "ck-tflock") == 0)
		*calls = tflock;
	else
		return -1;
	return 0;
}
