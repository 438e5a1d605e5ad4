// Locks before main, at the earliest moments there are: in .preinit_array, which runs before every library's
// constructor, and in the constructor of a library that the program is linked with (early_lib.c; linked once
// as it is and once with -z initfirst), which also starts threads that contend.
#include "check.h"

extern int early_state;
extern pthread_mutex_t early_mutex, early_fork_mutex;
extern int early_in_child;
extern pthread_spinlock_t early_spin;

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, e = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t s;
static int preinit_done;

static void preinit(void) {
    STAGE(".preinit_array");
    struct timespec past = in_the_past();
    OK(pthread_mutex_lock(&e));
    CALL(pthread_mutex_lock(&e), EDEADLK);
    CALL(pthread_mutex_destroy(&e), EBUSY);
    OK(pthread_mutex_lock(&m));
    CALL(pthread_mutex_trylock(&m), EBUSY);
    CALL(pthread_mutex_timedlock(&m, &past), ETIMEDOUT);
    CALL(pthread_cond_timedwait(&c, &m, &past), ETIMEDOUT);
    OK(pthread_cond_signal(&c));
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    OK(pthread_spin_lock(&s));
    CALL(pthread_spin_trylock(&s), EBUSY);
    // `m`, `e` and `s` stay locked until main.
    preinit_done = 1;
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(void) = preinit;

static void *unlocks(void *mutex) {
    return (void *)(long)pthread_mutex_unlock((pthread_mutex_t *)mutex);
}

static void *trylock(void *mutex) { return (void *)(long)pthread_mutex_trylock((pthread_mutex_t *)mutex); }

static void *spin_trylock(void *lock) {
    return (void *)(long)pthread_spin_trylock((pthread_spinlock_t *)lock);
}

static void held_until_now(pthread_spinlock_t *lock) {
    CHECK(join(spawn(spin_trylock, (void *)lock)) == (void *)(long)EBUSY, "the spinlock taken early is gone");
    OK(pthread_spin_unlock(lock));
    CHECK(join(spawn(spin_trylock, (void *)lock)) == NULL, "the spinlock was not unlocked");
    OK(pthread_spin_unlock(lock));
    OK(pthread_spin_destroy(lock));
}

static volatile int stop;
static long passes;

static void *hammers(void *unused) {
    while (!stop) {
        OK(pthread_mutex_lock(&early_fork_mutex));
        passes++;
        OK(pthread_mutex_unlock(&early_fork_mutex));
    }
    return unused;
}

static void *passes_on(void *unused) {
    for (int i = 0; i < 50; i++) {
        OK(pthread_mutex_lock(&early_fork_mutex));
        passes++;
        if (i % 10 == 0) sched_yield();
        OK(pthread_mutex_unlock(&early_fork_mutex));
    }
    return unused;
}

static void forks(void) {
    STAGE("fork handlers registered early");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = spawn(hammers, NULL);
    for (int i = 0; i < 50; i++) {
        IN_CHILD(15) {
            CHECK(early_in_child, "the early handler did not run");
            long before = passes;
            crowd(2, passes_on);
            CHECK(passes == before + 100, "%ld of 100 passes", passes - before);
        }
    }
    stop = 1;
    for (int i = 0; i < 4; i++) join(threads[i]);
}

int main(void) {
    limit_seconds(20);
    STAGE("main");
    CHECK(preinit_done && early_state == 1, "the early functions did not run: %d %d", preinit_done,
          early_state);
    // What was locked before the constructors is the same thread's afterwards.
    CALL(pthread_mutex_lock(&e), EDEADLK);
    CHECK(join(spawn(unlocks, &e)) == (void *)(long)EPERM, "another thread could unlock it");
    OK(pthread_mutex_unlock(&e));
    CALL(pthread_mutex_unlock(&e), EPERM);
    CHECK(join(spawn(trylock, &m)) == (void *)(long)EBUSY, "the lock taken in .preinit_array is gone");
    OK(pthread_mutex_unlock(&m));
    CHECK(join(spawn(trylock, &early_mutex)) == (void *)(long)EBUSY,
          "the lock taken in a constructor is gone");
    OK(pthread_mutex_unlock(&early_mutex));
    OK(pthread_mutex_destroy(&m));
    OK(pthread_mutex_destroy(&e));
    OK(pthread_mutex_destroy(&early_mutex));
    held_until_now(&s);
    held_until_now(&early_spin);
    forks();
    return 0;
}
