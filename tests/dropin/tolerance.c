// What glibc lets programs get away with, and what programs take for granted about the objects themselves:
// their size, that zeroes are a free mutex, that a free one may be copied or moved. And what is none of an
// interposer's business.
#include "check.h"

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "mtx_t is a pthread_mutex_t");
_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "cnd_t is a pthread_cond_t");
#if defined __x86_64__
_Static_assert(sizeof(pthread_mutex_t) == 40 && sizeof(pthread_cond_t) == 48, "sizes");
#elif defined __aarch64__
_Static_assert(sizeof(pthread_mutex_t) == 48 && sizeof(pthread_cond_t) == 48, "sizes");
#endif

static pthread_mutex_t *target;
static void *locks(void *unused) {
    return (void *)(long)pthread_mutex_lock(target);
}
static void *unlocks(void *unused) {
    return (void *)(long)pthread_mutex_unlock(target);
}
static void *tries(void *unused) {
    int result = pthread_mutex_trylock(target);
    if (result == 0) OK(pthread_mutex_unlock(target));
    return (void *)(long)result;
}

static long elsewhere(void *(*body)(void *), pthread_mutex_t *m) {
    target = m;
    return (long)join(spawn(body, NULL));
}

static long counter;
static pthread_mutex_t *hammered;
static void *adds(void *unused) {
    for (int i = 0; i < 1000; i++) {
        OK(pthread_mutex_lock(hammered));
        long v = counter;
        if (i % 50 == 0) sched_yield();
        counter = v + 1;
        OK(pthread_mutex_unlock(hammered));
    }
    return unused;
}

static void works(pthread_mutex_t *m) {
    hammered = m;
    counter = 0;
    crowd(3, adds);
    CHECK(counter == 3000, "%ld of 3000 additions", counter);
    OK(pthread_mutex_lock(m));
    CHECK(elsewhere(tries, m) == EBUSY, "not exclusive");
    OK(pthread_mutex_unlock(m));
    CHECK(elsewhere(tries, m) == 0, "not free");
}

static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static volatile pid_t writer_id;
static void *writes(void *unused) {
    announce(&writer_id);
    MUST(pthread_rwlock_wrlock(&rw));
    MUST(pthread_rwlock_unlock(&rw));
    return unused;
}

static volatile pid_t waiter_id;
static void *waits_and_hands_over(void *unused) {
    announce(&waiter_id);
    OK(pthread_mutex_lock(target));
    return unused;
}

int main(void) {
    limit_seconds(30);
    static const struct mutex_kind lax[] = {{"normal", PTHREAD_MUTEX_NORMAL, MAKE_STATIC},
                                            {"normal, attribute", PTHREAD_MUTEX_NORMAL, MAKE_ATTRIBUTE},
                                            {"adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, MAKE_STATIC}};
    for (int k = 0; k < 3; k++) {
        pthread_mutex_t m;
        CASE(lax[k].name);
        STAGE("unlocked by another thread than the one that locked");
        make_mutex(&m, &lax[k]);
        for (int i = 0; i < 50; i++) {
            OK(pthread_mutex_lock(&m));
            CHECK(elsewhere(unlocks, &m) == 0, "another thread cannot unlock");
            CHECK(elsewhere(locks, &m) == 0, "another thread cannot lock");
            CALL(pthread_mutex_trylock(&m), EBUSY);
            OK(pthread_mutex_unlock(&m));
        }
        works(&m);
        STAGE("unlocked by a third thread, with a waiter asleep");
        for (int i = 0; i < 20; i++) {
            OK(pthread_mutex_lock(&m));
            waiter_id = 0;
            target = &m;
            pthread_t waiter = spawn(waits_and_hands_over, NULL);
            await_asleep(&waiter_id);
            CHECK(elsewhere(unlocks, &m) == 0, "another thread cannot unlock");
            join(waiter);
            CALL(pthread_mutex_trylock(&m), EBUSY);
            OK(pthread_mutex_unlock(&m));
        }
        works(&m);
        STAGE("locked by a thread that ended, unlocked by another");
        for (int i = 0; i < 50; i++) {
            CHECK(elsewhere(locks, &m) == 0, "lock");
            CALL(pthread_mutex_trylock(&m), EBUSY);
            OK(pthread_mutex_unlock(&m));
        }
        works(&m);
        STAGE("unlocked when it was free");
        for (int i = 0; i < 3; i++) {
            OK(pthread_mutex_unlock(&m));
            OK(pthread_mutex_unlock(&m));
            OK(pthread_mutex_lock(&m));
            CALL(pthread_mutex_trylock(&m), EBUSY);
            OK(pthread_mutex_unlock(&m));
            OK(pthread_mutex_unlock(&m));
            CHECK(elsewhere(unlocks, &m) == 0, "unlock by another thread");
            works(&m);
        }
        STAGE("made anew while it is locked");
        OK(pthread_mutex_lock(&m));
        make_mutex(&m, &lax[k]);
        works(&m);
    }
    CASE("");

    STAGE("zeroes are a free mutex and a condition variable without waiters");
    pthread_mutex_t zero;
    pthread_cond_t zero_cond;
    memset(&zero, 0, sizeof zero);
    memset(&zero_cond, 0, sizeof zero_cond);
    CHECK(memcmp(&zero, &(pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER, sizeof zero) == 0,
          "the initialiser is not zero");
    works(&zero);
    OK(pthread_cond_signal(&zero_cond));
    OK(pthread_mutex_lock(&zero));
    struct timespec past = in_the_past();
    CALL(pthread_cond_timedwait(&zero_cond, &zero, &past), ETIMEDOUT);
    OK(pthread_mutex_unlock(&zero));

    STAGE("an unlocked mutex may be copied and moved, after it was contended too");
    for (int k = 0; k < MUTEX_KINDS; k++) {
        CASE(mutex_kinds[k].name);
        pthread_mutex_t original;
        make_mutex(&original, &mutex_kinds[k]);
        works(&original);
        pthread_mutex_t copy, heap[2];
        memcpy(&copy, &original, sizeof copy);
        OK(pthread_mutex_lock(&original));
        OK(pthread_mutex_lock(&copy));
        OK(pthread_mutex_unlock(&original));
        CHECK(elsewhere(tries, &copy) == EBUSY, "the copy is not locked");
        CHECK(elsewhere(tries, &original) == 0, "the original is not free");
        OK(pthread_mutex_unlock(&copy));
        works(&copy);
        memcpy(&heap[1], &copy, sizeof copy);
        memset(&copy, 0xff, sizeof copy);
        memset(&original, 0xff, sizeof original);
        works(&heap[1]);
        OK(pthread_mutex_destroy(&heap[1]));
    }
    CASE("");

    STAGE("nothing outside the object is written");
    struct {
        unsigned char before[64];
        pthread_mutex_t m;
        unsigned char between[64];
        pthread_cond_t c;
        unsigned char after[64];
    } fenced;
    for (int k = 0; k < MUTEX_KINDS; k++) {
        CASE(mutex_kinds[k].name);
        memset(&fenced, 0x6b, sizeof fenced);
        make_mutex(&fenced.m, &mutex_kinds[k]);
        OK(pthread_cond_init(&fenced.c, NULL));
        works(&fenced.m);
        OK(pthread_mutex_lock(&fenced.m));
        CALL(pthread_cond_timedwait(&fenced.c, &fenced.m, &past), ETIMEDOUT);
        OK(pthread_mutex_unlock(&fenced.m));
        OK(pthread_cond_broadcast(&fenced.c));
        OK(pthread_cond_destroy(&fenced.c));
        OK(pthread_mutex_destroy(&fenced.m));
        for (int i = 0; i < 64; i++)
            CHECK(fenced.before[i] == 0x6b && fenced.between[i] == 0x6b && fenced.after[i] == 0x6b, "byte %d",
                  i);
    }
    CASE("");

    STAGE("a second read lock by the same thread, with a writer waiting");
    MUST(pthread_rwlock_rdlock(&rw));
    pthread_t writer = spawn(writes, NULL);
    await_asleep(&writer_id);
    MUST(pthread_rwlock_rdlock(&rw));
    MUST(pthread_rwlock_unlock(&rw));
    MUST(pthread_rwlock_unlock(&rw));
    join(writer);
    return 0;
}
