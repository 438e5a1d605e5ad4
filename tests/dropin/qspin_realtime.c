// Real-time threads and ordinary ones at one spinlock, all of them on one CPU: a real-time thread that waited
// without giving up the CPU would keep the holder from running. Exits 77, with a line on standard error,
// where the system permits no real-time threads.
#include "check.h"

enum { ROUNDS = 300, THREADS = 5 };

static pthread_spinlock_t lock;
static volatile long first, second;
static volatile int finished;

static void *on_one_cpu(void *priority) {
    int cpu = 0;
    cpu_set_t allowed, set;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &allowed)) cpu++;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    if (priority != NULL) {
        struct sched_param parameter = {.sched_priority = (int)(long)priority};
        MUST(pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter));
    }
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_spin_lock(&lock));
        long v = first;
        CHECK(v == second, "two holders at once");
        first = v + 1;
        // Sleeps with the lock held: the real-time threads run into it.
        if (i % 10 == 0) usleep(50);
        second = v + 1;
        OK(pthread_spin_unlock(&lock));
        if (priority != NULL) usleep(20);
    }
    __atomic_fetch_add(&finished, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(void) {
    limit_seconds(60);
    need_real_time();
    STAGE("real-time and ordinary threads on one CPU");
    OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = spawn(on_one_cpu, (void *)(i < 2 ? 0 : i));
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    CHECK(first == THREADS * ROUNDS && finished == THREADS, "%ld of %d rounds", first, THREADS * ROUNDS);
    return 0;
}
