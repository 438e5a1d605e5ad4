// Three threads wait for a mutex until standard input ends. Its holder meanwhile, by the argument: "read"
// sleeps in read(2); "run" computes; "preempted" computes where another thread does so too, to which it is to
// yield always (SCHED_IDLE).
#include <sched.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int held, stop;

static void until_input_ends(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
}

static void compute(void) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    }
}

static void on_one_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
}

static void *other(void *cpu) {
    on_one_cpu(*(int *)cpu);
    compute();
    return NULL;
}

static void *waiter(void *unused) {
    while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE)) usleep(200);
    MUST(pthread_mutex_lock(&lock));
    MUST(pthread_mutex_unlock(&lock));
    return unused;
}

static void *holder(void *argument) {
    const char *way = argument;
    struct sched_param none = {0};
    int cpu = sched_getcpu();
    pthread_t rival;
    MUST(pthread_mutex_lock(&lock));
    __atomic_store_n(&held, 1, __ATOMIC_RELEASE);
    if (!strcmp(way, "read")) until_input_ends();
    if (!strcmp(way, "run")) compute();
    if (!strcmp(way, "preempted")) {
        on_one_cpu(cpu);
        rival = spawn(other, &cpu);
        MUST(pthread_setschedparam(pthread_self(), SCHED_IDLE, &none));
        compute();
        join(rival);
    }
    MUST(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "how does the holder hold?");
    pthread_t waiters[3], held_by = spawn(holder, argv[1]);
    for (int i = 0; i < 3; i++) waiters[i] = spawn(waiter, NULL);
    if (strcmp(argv[1], "read")) until_input_ends();
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join(held_by);
    for (int i = 0; i < 3; i++) join(waiters[i]);
    return 0;
}
