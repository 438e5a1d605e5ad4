/* Forms of misuse beyond those of examples/check: each is one argument, and one thing is found. It is written
 * so that it ends: a lock that will never be free is tried, or asked for with a limit. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t step;

static struct timespec soon(void) {
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += 50 * 1000000;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    return when;
}

static void take(int signal) {
    (void)signal;
    pthread_mutex_lock(&m);
    pthread_mutex_unlock(&m);
}

static void on(int number, int flags) {
    struct sigaction action = {.sa_handler = take, .sa_flags = flags};
    sigaction(number, &action, NULL);
}

static void outside(void) {
    pthread_mutex_lock(&m);
    pthread_mutex_unlock(&m);
}

/* First a thread that can be interrupted, then the handler. */
static void handler_after(void) {
    on(SIGUSR1, 0);
    outside();
    raise(SIGUSR1);
}

/* First the handler, at a place that is known already, and then such a thread. */
static void handler_before(void) {
    for (int round = 0; round < 2; round++) {
        outside();
        if (!round) {
            on(SIGUSR1, SA_SIGINFO | SA_NODEFER);
            raise(SIGUSR1);
        }
    }
}

/* By signal(), on another stack, and inside of another handler. */
static void nested(int signal) {
    (void)signal;
    raise(SIGUSR2);
}

static void handler_nested(void) {
    stack_t alternate = {.ss_size = 1 << 16, .ss_sp = malloc(1 << 16)};
    sigaltstack(&alternate, NULL);
    on(SIGUSR2, SA_ONSTACK);
    signal(SIGUSR1, nested);
    outside();
    raise(SIGUSR1);
}

static void try_direct(int signal) {
    (void)signal;
    struct timespec when = soon();
    CHECK(pthread_mutex_timedlock(&m, &when), ETIMEDOUT);
}

/* Certain: the interrupted thread has it. A limit ends it. */
static void handler_direct(void) {
    signal(SIGUSR1, try_direct);
    pthread_mutex_lock(&m);
    raise(SIGUSR1);
    pthread_mutex_unlock(&m);
}

static void try_it(int signal) {
    (void)signal;
    struct timespec when = soon();
    if (pthread_mutex_timedlock(&m, &when) == 0)
        pthread_mutex_unlock(&m);
}

/* A fault comes when it comes: only what the thread has itself matters. */
static void handler_fault(void) {
    outside();
    signal(SIGSEGV, try_it);
    raise(SIGSEGV);
    outside();
    pthread_mutex_lock(&m);
    raise(SIGSEGV);
    pthread_mutex_unlock(&m);
}

static void *read_and_stay(void *unused) {
    (void)unused;
    pthread_rwlock_rdlock(&table);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    pthread_rwlock_unlock(&table);
    return NULL;
}

/* Another thread reads while this one forks, without a lock of its own; the child wants to write. */
static void fork_held_reader(void) {
    pthread_t thread;
    pthread_barrier_init(&step, NULL, 2);
    pthread_create(&thread, NULL, read_and_stay, NULL);
    pthread_barrier_wait(&step);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pthread_rwlock_tryrdlock(&table), 0);
        CHECK(pthread_rwlock_unlock(&table), 0);
        struct timespec when = soon();
        CHECK(pthread_rwlock_timedwrlock(&table, &when), ETIMEDOUT);
        _exit(failures());
    }
    pthread_barrier_wait(&step);
    int status;
    waitpid(child, &status, 0);
    CHECK(status, 0);
    pthread_join(thread, NULL);
}

static void free_held_shrunk(void) {
    char *block = malloc(100000);
    pthread_mutex_t *last = (pthread_mutex_t *)(block + 90000);
    memset(last, 0, sizeof *last);
    pthread_mutex_lock(last);
    block = realloc(block, 1000);
    free(block);
}

static void free_held_mremap(void) {
    char *map = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_lock((pthread_mutex_t *)(map + 4096));
    map = mremap(map, 1 << 16, 4096, 0);
    CHECK(map != MAP_FAILED, 1);
}

static void *wait_with(void *condition) {
    pthread_mutex_lock(&m);
    pthread_barrier_wait(&step);
    struct timespec when = soon();
    when.tv_sec += 1;
    pthread_cond_timedwait(condition, &m, &when);
    pthread_mutex_unlock(&m);
    return NULL;
}

/* Its memory is given back while a thread waits for it; and stays mapped, so that the thread can leave. */
static void free_held_condition(void) {
    char *map = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_cond_t *condition = (pthread_cond_t *)(map + 8192);
    pthread_barrier_init(&step, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_with, condition);
    pthread_barrier_wait(&step);
    pthread_mutex_lock(&m);
    pthread_mutex_unlock(&m);
    /* Refused by the system: not a whole page. */
    munmap(map + 8192, 0);
    char *other = mremap(map, 1 << 16, 2 << 16, MREMAP_MAYMOVE);
    if (other == map)
        munmap(map, 4096 * 4);
    _exit(failures());
}

static void destroyed_condition(void) {
    pthread_cond_init(&changed, NULL);
    pthread_cond_destroy(&changed);
    pthread_cond_signal(&changed);
}

static void destroyed_rwlock(void) {
    pthread_rwlock_destroy(&table);
    pthread_rwlock_rdlock(&table);
    pthread_rwlock_unlock(&table);
}

static void destroyed_spinlock(void) {
    pthread_spinlock_t spinlock;
    pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&spinlock);
    pthread_spin_unlock(&spinlock);
    pthread_spin_destroy(&spinlock);
    CHECK(pthread_spin_lock(&spinlock), 0);
    CHECK(pthread_spin_unlock(&spinlock), 0);
}

static void destroyed_twice(void) {
    pthread_mutex_destroy(&m);
    pthread_mutex_destroy(&m);
}

static void uninitialised_rwlock(void) {
    pthread_rwlock_t *lock = malloc(sizeof *lock);
    memset(lock, 0xa5, sizeof *lock);
    pthread_rwlock_tryrdlock(lock);
}

static void uninitialised_condition(void) {
    pthread_cond_t *condition = malloc(sizeof *condition);
    memset(condition, 0xa5, sizeof *condition);
    pthread_cond_signal(condition);
}

/* What was a list's links, and has the kind of an ordinary mutex. */
static void uninitialised_links(void) {
    pthread_mutex_t *mutex = calloc(1, sizeof *mutex);
    memcpy(mutex, &mutex, sizeof mutex);
    CHECK(pthread_mutex_trylock(mutex) == 0 || 1, 1);
}

static void copied_and_waited_for(void) {
    pthread_mutex_t copy;
    pthread_mutex_lock(&m);
    memcpy(&copy, &m, sizeof copy);
    pthread_mutex_unlock(&m);
    struct timespec when = soon();
    CHECK(pthread_mutex_timedlock(&copy, &when), ETIMEDOUT);
}

static void *stay(void *barrier) {
    pthread_barrier_wait(barrier);
    return NULL;
}

/* One of two has come. glibc waits for it for ever, so an alarm ends the process. */
static void destroy_waited_barrier(void) {
    static pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, stay, &barrier);
    /* The first word of glibc's counts those that have come. */
    while (*(volatile unsigned *)&barrier != 1)
        usleep(1000);
    signal(SIGALRM, SIG_DFL);
    alarm(2);
    pthread_barrier_destroy(&barrier);
}

static __attribute__((noinline)) void leave(int ways) {
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mine);
    if (ways)
        __asm__ volatile("" : : "r"(&mine) : "memory");
}

static void *in_a_thread(void *unused) {
    leave(1);
    outside();
    return unused;
}

static void frame_gone_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_a_thread, NULL);
    pthread_join(thread, NULL);
}

static void *leave_by_exit(void *unused) {
    pthread_rwlock_rdlock(&table);
    pthread_exit(unused);
}

static void exit_held_reader(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, leave_by_exit, NULL);
    pthread_join(thread, NULL);
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*act)(void); } all[] = {
        {"handler-after", handler_after},
        {"handler-before", handler_before},
        {"handler-nested", handler_nested},
        {"handler-direct", handler_direct},
        {"handler-fault", handler_fault},
        {"fork-held-reader", fork_held_reader},
        {"free-held-shrunk", free_held_shrunk},
        {"free-held-mremap", free_held_mremap},
        {"free-held-condition", free_held_condition},
        {"destroyed-condition", destroyed_condition},
        {"destroyed-rwlock", destroyed_rwlock},
        {"destroyed-spinlock", destroyed_spinlock},
        {"destroyed-twice", destroyed_twice},
        {"uninitialised-rwlock", uninitialised_rwlock},
        {"uninitialised-condition", uninitialised_condition},
        {"uninitialised-links", uninitialised_links},
        {"copied-and-waited-for", copied_and_waited_for},
        {"destroy-waited-barrier", destroy_waited_barrier},
        {"frame-gone-thread", frame_gone_thread},
        {"exit-held-reader", exit_held_reader},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (count == 2 && strcmp(arguments[1], all[n].name) == 0) {
            all[n].act();
            return failures();
        }
    return 2;
}
