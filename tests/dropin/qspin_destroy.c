// A spinlock that protects the life of its own memory: whoever finds that it is the last one unlocks,
// destroys, and frees or unmaps it, while the others may still be on their way out of unlock. One that
// touches the lock after another thread could take it is a SIGSEGV here, or a memory checker's error.
#include "check.h"
#include <sys/mman.h>

enum { PAGE = 4096, MOST = 4 };

struct object {
    pthread_spinlock_t lock;
    volatile int users;
};

static pthread_barrier_t barrier;
static struct object *volatile current;
static int threads, rounds, mapped, shared;

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

static void *user(void *number) {
    long me = (long)number;
    for (int i = 0; i < rounds; i++) {
        if (me == 0) {
            struct object *o = make();
            o->users = threads;
            current = o;
        }
        pthread_barrier_wait(&barrier);
        struct object *o = current;
        // Everybody has seen it before the first can be gone.
        pthread_barrier_wait(&barrier);
        if ((i + me) % 8 == 3)
            while (pthread_spin_trylock(&o->lock) != 0) sched_yield();
        else
            OK(pthread_spin_lock(&o->lock));
        int last = --o->users == 0;
        // Now and then long enough for the others to halt.
        if (i % 16 == 0)
            for (volatile int spin = 0; spin < 20000; spin++) continue;
        OK(pthread_spin_unlock(&o->lock));
        if (last) dispose(o);
    }
    return NULL;
}

static sem_t handed, taken;

static void *receiver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        sem_down(&handed);
        struct object *o = current;
        sem_post(&taken);
        OK(pthread_spin_lock(&o->lock));
        OK(pthread_spin_unlock(&o->lock));
        dispose(o);
    }
    return unused;
}

static void *giver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        struct object *o = make();
        OK(pthread_spin_lock(&o->lock));
        current = o;
        sem_post(&handed);
        sem_down(&taken);
        // The receiver finds it held, finds it free, spins, or has halted.
        for (volatile int spin = 0; spin < i * 37 % 4000; spin++) continue;
        if (i % 64 == 0) usleep(200);
        OK(pthread_spin_unlock(&o->lock));
    }
    return unused;
}

int main(int argc, char **argv) {
    limit_seconds(100);
    // Fewer under a memory checker, which runs one thread at a time.
    int most_rounds = argc > 1 ? atoi(argv[1]) : 1000;
    sem_init(&handed, 0, 0);
    sem_init(&taken, 0, 0);
    for (int way = 0; way < 3; way++) {
        static const char *const names[] = {"freed", "unmapped", "process-shared, unmapped"};
        CASE(names[way]);
        mapped = way > 0;
        shared = way == 2 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
        STAGE("the last of several destroys");
        for (threads = 2; threads <= MOST; threads++) {
            rounds = most_rounds / (threads - 1);
            pthread_barrier_init(&barrier, NULL, (unsigned)threads);
            crowd(threads, user);
            pthread_barrier_destroy(&barrier);
        }
        STAGE("handed over and gone");
        rounds = most_rounds;
        pthread_t give = spawn(giver, NULL), take = spawn(receiver, NULL);
        join(give);
        join(take);
    }
    return 0;
}
