/*
 * What a shim exports. Each is compiled into a shared object of its own, with the headers of the package
 * whose locks it puts behind C functions; see `src/lib.rs` for what the functions are to do.
 */
#ifndef POUNDLOCK_PEER_H
#define POUNDLOCK_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `Calls` in `src/lib.rs`. */
struct poundlock_calls {
	size_t size;
	size_t align;
	size_t node;
	void (*init)(void *lock);
	void (*lock)(void *lock, void *node);
	void (*unlock)(void *lock, void *node);
	void (*destroy)(void *lock);
};

/* `rw::Calls` in `src/rw.rs`. */
struct poundlock_rw_calls {
	struct poundlock_calls write;
	void (*read_lock)(void *lock, void *node);
	void (*read_unlock)(void *lock, void *node);
};

/* The machine's NUMA nodes, and which of them each CPU belongs to. It lives as long as the program. */
struct poundlock_topology {
	uint32_t nodes;
	uint32_t cpus;
	const uint32_t *node_of_cpu;
};

/*
 * Fills `calls` in and returns 0, or returns -1 if it has no lock of that name. May be called more than once.
 */
__attribute__((visibility("default")))
int poundlock_peer(const char *name, const struct poundlock_topology *topology,
							   struct poundlock_calls *calls);

/* The same for readers-writer locks; for shims that have some. */
__attribute__((visibility("default")))
int poundlock_rw_peer(const char *name, struct poundlock_rw_calls *calls);

#ifdef __cplusplus
}
#endif

#endif
