// destroy.h's rule for spinlocks, freed or unmapped. An unlock that touches the lock after another thread
// could take it is a SIGSEGV here, or a memory checker's error.
#include "check.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

struct object {
    pthread_spinlock_t lock;
    volatile int users;
};

#include "destroy.h"

static int mapped, shared;

static struct object *make(void) {
    struct object *o = mapped ? (struct object *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                              : (struct object *)malloc(sizeof *o);
    CHECK(o != NULL && (void *)o != MAP_FAILED, "out of memory");
    OK(pthread_spin_init(&o->lock, shared));
    return o;
}

static void dispose(struct object *o) {
    OK(pthread_spin_destroy(&o->lock));
    if (mapped) SYS(munmap(o, PAGE));
    else free(o);
}

static void enter(struct object *o, long turn) {
    if (turn % 8 == 3)
        while (pthread_spin_trylock(&o->lock) != 0) sched_yield();
    else
        OK(pthread_spin_lock(&o->lock));
}

static void leave(struct object *o, long turn) {
    // Now and then long enough for the others to halt.
    if (turn % 16 == 0)
        for (volatile int spin = 0; spin < 20000; spin++) continue;
    OK(pthread_spin_unlock(&o->lock));
}

int main(int argc, char **argv) {
    limit_seconds(100);
    // Fewer under a memory checker, which runs one thread at a time.
    int most_rounds = argc > 1 ? atoi(argv[1]) : 1000;
    for (int way = 0; way < 3; way++) {
        static const char *const names[] = {"freed", "unmapped", "process-shared, unmapped"};
        CASE(names[way]);
        mapped = way > 0;
        shared = way == 2 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
        destroyed_by_the_last(most_rounds);
    }
    return 0;
}
