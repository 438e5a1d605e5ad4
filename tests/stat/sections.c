/* Threads that take a lock, do something, give it back and do something else, over and over. A program is
   named for what is wrong with it; its twin, `_not`, makes the same calls and has nothing of the sort. Work
   is CPU time, in microseconds: no proportion changes on a machine with other things to do. What holders do
   is known from looks at them, and those are few where the CPUs are busy: where that decides, there are more
   turns. */
#include "work.h"

enum lock { MUTEX, SPINLOCK, RWLOCK, INHERITING };
enum call { NONE, SLEEP, REQUEST, SLEEP_OUTSIDE, REQUEST_OUTSIDE };
enum rest { COMPUTE, WAIT, VISIT };

static const struct program {
    const char *name;
    enum lock lock;
    int locks, threads, turns;
    long inside, outside;
    int write_one_in; /* of readers-writer locks */
    enum call call;
    int waits;        /* threads go on, whatever the turns, until they have waited as often */
    int more;         /* threads that last as long as the others, and compute, wait for that or visit: */
    enum rest rest;   /* they sleep, and then want the lock for a moment */
} programs[] = {
    /* Two threads that work would wait for each other only if both had a CPU all the time. */
    {"too_long", .locks = 1, .threads = 1, .turns = 60, .inside = 2000, .more = 1, .rest = VISIT},
    {"too_long_not", .locks = 2, .threads = 1, .turns = 60, .inside = 2000, .more = 1, .rest = VISIT},
    {"too_often", SPINLOCK, .locks = 1, .threads = 2, .turns = 10000, .inside = 5},
    {"too_often_not", SPINLOCK, .locks = 1, .threads = 2, .turns = 1000, .outside = 100},
    {"preempted", .locks = 1, .threads = 8, .turns = 50, .inside = 2000, .outside = 20, .more = 8},
    {"preempted_not", .locks = 1, .threads = 2, .turns = 20, .inside = 2000, .more = 14, .rest = WAIT},
    /* Those that wait spin, and so have the CPUs. */
    {"preempted_by_spinners", SPINLOCK, .locks = 1, .threads = 8, .turns = 60, .inside = 1000},
    {"preempted_by_spinners_not", SPINLOCK, .locks = 1, .threads = 2, .turns = 40, .inside = 1000},
    {"blocked", .locks = 1, .threads = 4, .turns = 150, .outside = 1, .call = SLEEP},
    {"blocked_not", .locks = 1, .threads = 4, .turns = 150, .outside = 1, .call = SLEEP_OUTSIDE},
    /* Writers ask another thread for something, and wait for the answer. */
    {"blocked_by_request", RWLOCK, 1, 3, .turns = 150, .write_one_in = 1, .call = REQUEST},
    {"blocked_by_request_not", RWLOCK, 1, 3, .turns = 150, .write_one_in = 1, .call = REQUEST_OUTSIDE},
    {"writing_readers", RWLOCK, 1, 1, .turns = 150, .inside = 1000, .write_one_in = 2, .more = 1,
     .rest = VISIT},
    {"writing_readers_not", RWLOCK, 1, 1, .turns = 150, .inside = 1000, .write_one_in = 50, .more = 1,
     .rest = VISIT},
    {"false_alarm", .locks = 2, .threads = 2, .turns = 1000, .outside = 200},
    {"false_alarm_not", .locks = 1, .threads = 1, .turns = 200, .inside = 1000, .more = 1, .rest = VISIT},
    /* The kernel hands this mutex to the first of those that sleep for it. (The C library's others are free
       until a sleeper runs: if another thread comes first, which is chance, none waits.) */
    {"convoy", INHERITING, .locks = 1, .threads = 4, .waits = 3000},
    {"convoy_not", INHERITING, .locks = 1, .threads = 4, .inside = 2000, .waits = 60},
};

static const struct program *program;
static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static pthread_barrier_t end;
static int requests[2], answers[2], waits, busy;

static void take(int number, int writes)
{
    if (program->lock == SPINLOCK) pthread_spin_lock(&spinlock); /* too_often preempted_by_spinners */
    else if (program->lock == RWLOCK && !writes) pthread_rwlock_rdlock(&rwlock); /* writing_readers */
    else if (program->lock == RWLOCK)
        pthread_rwlock_wrlock(&rwlock); /* writing_readers blocked_by_request */
    else if (!program->waits) pthread_mutex_lock(&mutexes[number]); /* too_long preempted blocked */
    else if (pthread_mutex_trylock(&mutexes[number])) { /* convoy */
        pthread_mutex_lock(&mutexes[number]); /* convoy */
        waits++;
    }
}

static void give_back(int number)
{
    if (program->lock == SPINLOCK) pthread_spin_unlock(&spinlock);
    else if (program->lock == RWLOCK) pthread_rwlock_unlock(&rwlock);
    else pthread_mutex_unlock(&mutexes[number]);
}

static void call(enum call sleep, enum call request)
{
    char byte = 0;
    if (program->call == sleep) usleep(3000);
    if (program->call == request)
        if (write(requests[1], &byte, 1) != 1 || read(answers[0], &byte, 1) != 1) abort();
}

static void *serve(void *unused)
{
    char byte;
    while (read(requests[0], &byte, 1) == 1) {
        compute(2000);
        if (write(answers[1], &byte, 1) != 1) abort();
    }
    return unused;
}

static void work(int thread)
{
    int number = thread % program->locks, beside = thread >= program->threads, over = 0;
    for (int turn = 0; !over; turn++) {
        if (beside && program->rest == COMPUTE) compute(100);
        if (beside && program->rest == VISIT) usleep(300);
        if (!beside || program->rest == VISIT) {
            take(number, program->write_one_in && (turn + thread) % program->write_one_in == 0);
            compute(beside ? 0 : program->inside);
            call(SLEEP, REQUEST);
            over = program->waits ? waits >= program->waits : turn + 1 == program->turns;
            give_back(number);
            compute(beside ? 0 : program->outside);
            call(SLEEP_OUTSIDE, REQUEST_OUTSIDE);
        }
        if (beside) over = program->rest == WAIT || !__atomic_load_n(&busy, __ATOMIC_RELAXED);
    }
    if (!beside) __atomic_sub_fetch(&busy, 1, __ATOMIC_RELAXED);
    pthread_barrier_wait(&end);
}

int main(int argc, char **argv)
{
    for (program = programs; argc != 2 || strcmp(program->name, argv[1]); program++)
        if (argc != 2 || program + 1 == programs + sizeof programs / sizeof *programs) return 2;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (program->lock == INHERITING) pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    for (int i = 0; i < 2; i++) pthread_mutex_init(&mutexes[i], &attributes);
    pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE);
    int threads = program->threads + program->more;
    pthread_barrier_init(&end, NULL, (unsigned)threads);
    busy = program->threads;
    pthread_t server;
    int serves = program->call == REQUEST || program->call == REQUEST_OUTSIDE;
    if (serves && (pipe(requests) || pipe(answers) || pthread_create(&server, NULL, serve, NULL))) abort();
    run_threads(threads, work);
    close(requests[1]);
    if (serves) pthread_join(server, NULL);
    return 0;
}
