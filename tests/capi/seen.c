// What `poundlock stat` and `poundlock check` see of each type. The argument says what there is to see.
#include "check.h"

static poundlock_mutex_t mutex = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_mutex_t second = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_recursive_mutex_t again = POUNDLOCK_RECURSIVE_MUTEX_INITIALIZER;
static poundlock_spinlock_t spin = POUNDLOCK_SPINLOCK_INITIALIZER;
static poundlock_rwlock_t shared = POUNDLOCK_RWLOCK_INITIALIZER;
static poundlock_cond_t changed = POUNDLOCK_COND_INITIALIZER;
static pthread_barrier_t both;
static int ready;

static const struct timespec past = {0, 0};

static void in_a_thread(void *(*body)(void *)) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, NULL));
    OK(pthread_join(thread, NULL));
}

static void *takes(void *unused) {
    for (int i = 0; i < 50; i++) {
        OK(poundlock_mutex_lock(&mutex));
        OK(poundlock_spinlock_lock(&spin));
        OK(poundlock_spinlock_unlock(&spin));
        OK(poundlock_mutex_unlock(&mutex));
        OK(poundlock_recursive_mutex_lock(&again));
        OK(poundlock_recursive_mutex_lock(&again));
        OK(poundlock_recursive_mutex_unlock(&again));
        OK(poundlock_recursive_mutex_unlock(&again));
    }
    for (int i = 0; i < 5; i++) {
        OK(poundlock_rwlock_rdlock(&shared));
        OK(poundlock_rwlock_rdunlock(&shared));
        OK(poundlock_rwlock_wrlock(&shared));
        // It has waited for the readers-writer lock before it had the mutex: that is no order of its own.
        OK(poundlock_mutex_lock(&second));
        OK(poundlock_rwlock_downgrade(&shared));
        OK(poundlock_mutex_unlock(&second));
        OK(poundlock_rwlock_rdunlock(&shared));
        OK(poundlock_rwlock_uplock(&shared));
        OK(poundlock_rwlock_upgrade(&shared));
        OK(poundlock_rwlock_downgrade_to_up(&shared));
        OK(poundlock_rwlock_up_to_rd(&shared));
        OK(poundlock_rwlock_rdunlock(&shared));
    }
    return unused;
}

static void *refused(void *unused) {
    CHECK(poundlock_mutex_trylock(&mutex) == EBUSY, "trylock");
    CHECK(poundlock_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &past) == ETIMEDOUT, "clocklock");
    CHECK(poundlock_recursive_mutex_trylock(&again) == EBUSY, "trylock");
    CHECK(poundlock_rwlock_trywrlock(&shared) == EBUSY, "trywrlock");
    return unused;
}

static void *waits(void *unused) {
    OK(poundlock_mutex_lock(&mutex));
    while (!ready) OK(poundlock_cond_wait(&changed, &mutex));
    OK(poundlock_mutex_unlock(&mutex));
    return unused;
}

// Rightly: there is nothing to find.
static void counts(void) {
    in_a_thread(takes);
    in_a_thread(takes);
    poundlock_mutex_t *made = malloc(sizeof *made);
    CHECK(made != NULL, "no memory");
    OK(poundlock_mutex_init(made));
    OK(poundlock_mutex_lock(made));
    OK(poundlock_mutex_unlock(made));
    OK(poundlock_mutex_destroy(made));
    free(made);
    OK(poundlock_mutex_lock(&mutex));
    OK(poundlock_recursive_mutex_lock(&again));
    OK(poundlock_rwlock_rdlock(&shared));
    in_a_thread(refused);
    OK(poundlock_rwlock_rdunlock(&shared));
    OK(poundlock_recursive_mutex_unlock(&again));
    CHECK(poundlock_cond_clockwait(&changed, &mutex, CLOCK_REALTIME, &past) == ETIMEDOUT, "clockwait");
    pthread_t thread;
    OK(pthread_create(&thread, NULL, waits, NULL));
    ready = 1;
    OK(poundlock_cond_signal(&changed));
    OK(poundlock_mutex_unlock(&mutex));
    OK(pthread_join(thread, NULL));
    OK(poundlock_cond_broadcast(&changed));
    OK(poundlock_cond_destroy(&changed));
}

static void *keeps(void *unused) {
    OK(poundlock_spinlock_lock(&spin)); // exit-held
    return unused;
}

static void *unlocks(void *unused) {
    OK(poundlock_mutex_unlock(&mutex)); // unlock-other
    return unused;
}

static void *destroys(void *unused) {
    CHECK(poundlock_rwlock_destroy(&shared) == EBUSY, "destroy"); // destroy-held
    return unused;
}

static void misuse(void) {
    CHECK(poundlock_recursive_mutex_unlock(&again) == EPERM, "unlock"); // unlock-free
    OK(poundlock_mutex_lock(&mutex));
    in_a_thread(unlocks);
    OK(poundlock_rwlock_rdlock(&shared));
    in_a_thread(destroys);
    OK(poundlock_rwlock_rdlock(&shared)); // reread
    OK(poundlock_rwlock_rdunlock(&shared));
    OK(poundlock_rwlock_rdunlock(&shared));
    in_a_thread(keeps);
    poundlock_mutex_t *made = malloc(sizeof *made);
    CHECK(made != NULL, "no memory");
    OK(poundlock_mutex_init(made));
    OK(poundlock_mutex_lock(made));
    free(made); // free-held
    OK(poundlock_mutex_lock(&second));
    OK(poundlock_mutex_lock(&second)); // relock
}

static void *one(void *unused) {
    OK(poundlock_mutex_lock(&mutex)); // deadlock
    pthread_barrier_wait(&both);
    OK(poundlock_rwlock_wrlock(&shared)); // deadlock
    return unused;
}

static void *other(void *unused) {
    OK(poundlock_rwlock_rdlock(&shared)); // deadlock
    pthread_barrier_wait(&both);
    OK(poundlock_mutex_lock(&mutex)); // deadlock
    return unused;
}

static void *gives_up(void *unused) {
    OK(poundlock_mutex_lock(&mutex));
    pthread_barrier_wait(&both);
    struct timespec soon;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &soon) == 0, "no time");
    soon.tv_nsec += 300 * 1000 * 1000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    CHECK(poundlock_rwlock_clockwrlock(&shared, CLOCK_MONOTONIC, &soon) == ETIMEDOUT, "clockwrlock");
    OK(poundlock_mutex_unlock(&mutex));
    return unused;
}

static void *goes_on(void *unused) {
    OK(poundlock_rwlock_rdlock(&shared));
    pthread_barrier_wait(&both);
    OK(poundlock_mutex_lock(&mutex));
    OK(poundlock_mutex_unlock(&mutex));
    OK(poundlock_rwlock_rdunlock(&shared));
    return unused;
}

static void crossed(void *(*body)(void *), void *(*another)(void *)) {
    pthread_t thread;
    OK(pthread_barrier_init(&both, NULL, 2));
    OK(pthread_create(&thread, NULL, body, NULL));
    in_a_thread(another);
    OK(pthread_join(thread, NULL));
}

// What libpoundlock looks for when it starts, as far as it is the same in all versions.
extern const struct {
    unsigned version;
    void (*of_another_version)(unsigned);
} poundlock_statistics __attribute__((weak));

int main(int argc, char **argv) {
    CHECK(argc == 2, "what is to be seen?");
    if (strcmp(argv[1], "counts") == 0) {
        counts();
    } else if (strcmp(argv[1], "misuse") == 0) {
        misuse();
    } else if (strcmp(argv[1], "deadlock") == 0) {
        crossed(one, other);
    } else if (strcmp(argv[1], "timed") == 0) {
        crossed(gives_up, goes_on);
    } else {
        CHECK(&poundlock_statistics != NULL, "nobody watches");
        for (int i = 1; i < 3; i++) poundlock_statistics.of_another_version(poundlock_statistics.version + i);
    }
    return 0;
}
