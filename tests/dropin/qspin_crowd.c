// Far more threads than CPUs at one spinlock, a fixed number of critical sections each. With a lock whose
// waiters run in place of its holder, or of the next in line, each hand-over takes time slices of somebody
// who can do nothing: minutes. The harness's limit is what tells.
#include "check.h"

enum { SECTIONS = 60000, MOST = 250 };

static pthread_spinlock_t lock;
static pthread_barrier_t barrier;
static volatile long first, second;
static int rounds;

static void *crowds(void *number) {
    long mine = 0;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < rounds; i++) {
        OK(pthread_spin_lock(&lock));
        ALONE(first, second, for (volatile int spin = 0; spin < 100; spin++) continue);
        OK(pthread_spin_unlock(&lock));
        mine++;
        for (volatile int spin = 0; spin < (int)(long)number; spin++) continue;
    }
    return (void *)mine;
}

int main(void) {
    limit_seconds(100);
    static const int counts[] = {64, MOST};
    static pthread_t threads[MOST];
    for (int c = 0; c < 2; c++) {
        int count = counts[c];
        STAGE(c ? "250 threads" : "64 threads");
        rounds = SECTIONS / count;
        first = second = 0;
        OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
        MUST(pthread_barrier_init(&barrier, NULL, (unsigned)count));
        for (long i = 0; i < count; i++) threads[i] = spawn(crowds, (void *)i);
        for (int i = 0; i < count; i++) CHECK((long)join(threads[i]) == rounds, "a thread left early");
        CHECK(first == (long)count * rounds && second == first, "%ld of %d sections", first, count * rounds);
        MUST(pthread_barrier_destroy(&barrier));
        OK(pthread_spin_destroy(&lock));
    }
    return 0;
}
