// poundlock_rwlock_t: sharing, exclusion, results, deadlines, the policies, and the upgradable reader.
#include "check.h"

enum { THREADS = 6, ROUNDS = 5000 };

static poundlock_rwlock_t lock = POUNDLOCK_RWLOCK_INITIALIZER;
static long one, other;
static volatile pid_t waiter;

// In a thread that is not inside: nobody else gets in beside a writer.
static void *beside_writer(void *unused) {
    CALL(poundlock_rwlock_tryrdlock(&lock), EBUSY);
    CALL(poundlock_rwlock_trywrlock(&lock), EBUSY);
    CALL(poundlock_rwlock_tryuplock(&lock), EBUSY);
    GIVES_UP(poundlock_rwlock_clockrdlock, &lock);
    GIVES_UP(poundlock_rwlock_clockwrlock, &lock);
    GIVES_UP(poundlock_rwlock_clockuplock, &lock);
    return unused;
}

// Beside a reader readers do, and an upgradable one.
static void *beside_reader(void *unused) {
    struct timespec past = in_the_past();
    OK(poundlock_rwlock_tryrdlock(&lock));
    OK(poundlock_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &past));
    CALL(poundlock_rwlock_trywrlock(&lock), EBUSY);
    OK(poundlock_rwlock_tryuplock(&lock));
    CALL(poundlock_rwlock_tryuplock(&lock), EBUSY);
    CALL(poundlock_rwlock_tryupgrade(&lock), EBUSY);
    GIVES_UP(poundlock_rwlock_clockupgrade, &lock);
    OK(poundlock_rwlock_upunlock(&lock));
    OK(poundlock_rwlock_clockuplock(&lock, CLOCK_REALTIME, &past));
    OK(poundlock_rwlock_up_to_rd(&lock));
    OK(poundlock_rwlock_uplock(&lock));
    OK(poundlock_rwlock_upunlock(&lock));
    for (int i = 0; i < 3; i++) OK(poundlock_rwlock_rdunlock(&lock));
    GIVES_UP(poundlock_rwlock_clockwrlock, &lock);
    return unused;
}

static void results(void) {
    STAGE("results");
    struct timespec past = in_the_past();
    OK(poundlock_rwlock_wrlock(&lock));
    CALL(poundlock_rwlock_destroy(&lock), EBUSY);
    join(spawn(beside_writer, NULL));
    OK(poundlock_rwlock_downgrade(&lock));
    CALL(poundlock_rwlock_destroy(&lock), EBUSY);
    join(spawn(beside_reader, NULL));
    OK(poundlock_rwlock_rdunlock(&lock));
    OK(poundlock_rwlock_clockwrlock(&lock, CLOCK_REALTIME, &past));
    OK(poundlock_rwlock_downgrade_to_up(&lock));
    OK(poundlock_rwlock_tryupgrade(&lock));
    OK(poundlock_rwlock_downgrade_to_up(&lock));
    OK(poundlock_rwlock_clockupgrade(&lock, CLOCK_MONOTONIC, &past));
    OK(poundlock_rwlock_wrunlock(&lock));
    REFUSES(poundlock_rwlock_clockrdlock, &lock);
    REFUSES(poundlock_rwlock_clockwrlock, &lock);
    REFUSES(poundlock_rwlock_clockuplock, &lock);
    OK(poundlock_rwlock_destroy(&lock));
    memset(&lock, 0xa5, sizeof lock);
    CALL(poundlock_rwlock_init(&lock, 3), EINVAL);
    OK(poundlock_rwlock_init(&lock, POUNDLOCK_RWLOCK_PHASE_FAIR));
}

static void *upgrade(void *unused) {
    OK(poundlock_rwlock_uplock(&lock));
    announce(&waiter);
    OK(poundlock_rwlock_upgrade(&lock));
    one++;
    other++;
    OK(poundlock_rwlock_wrunlock(&lock));
    return unused;
}

static void upgrades(void) {
    STAGE("an upgrade waits for the readers");
    OK(poundlock_rwlock_rdlock(&lock));
    long before = one;
    pthread_t thread = spawn(upgrade, NULL);
    await_asleep(&waiter);
    CHECK(one == before && other == before, "a writer beside a reader");
    OK(poundlock_rwlock_rdunlock(&lock));
    join(thread);
    CHECK(one == before + 1 && other == before + 1, "%ld %ld", one, other);
}

static void *write_once(void *argument) {
    announce(&waiter);
    OK(poundlock_rwlock_wrlock((poundlock_rwlock_t *)argument));
    OK(poundlock_rwlock_wrunlock((poundlock_rwlock_t *)argument));
    return NULL;
}

static void policies(void) {
    static poundlock_rwlock_t fair = POUNDLOCK_RWLOCK_INITIALIZER,
                              readers = POUNDLOCK_RWLOCK_READER_PREFERRING_INITIALIZER,
                              writers = POUNDLOCK_RWLOCK_WRITER_PREFERRING_INITIALIZER;
    poundlock_rwlock_t *const all[] = {&fair, &readers, &writers};
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"phase-fair", "reader-preferring", "writer-preferring"};
        STAGE("a waiting writer");
        CASE(names[i]);
        poundlock_rwlock_t *tried = all[i];
        OK(poundlock_rwlock_rdlock(tried));
        __atomic_store_n(&waiter, 0, __ATOMIC_RELEASE);
        pthread_t thread = spawn(write_once, tried);
        await_asleep(&waiter);
        if (tried == &readers) {
            // A reader enters again whoever waits.
            OK(poundlock_rwlock_rdlock(tried));
            OK(poundlock_rwlock_tryrdlock(tried));
            OK(poundlock_rwlock_rdunlock(tried));
            OK(poundlock_rwlock_rdunlock(tried));
        } else {
            // Sooner or later it keeps readers out.
            for (int result; (result = poundlock_rwlock_tryrdlock(tried)) != EBUSY; usleep(200)) {
                CHECK(result == 0, "tryrdlock: %d", result);
                OK(poundlock_rwlock_rdunlock(tried));
            }
        }
        OK(poundlock_rwlock_rdunlock(tried));
        join(thread);
        OK(poundlock_rwlock_destroy(tried));
        CASE("");
    }
}

static void *use(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        switch (i % 4) {
        case 0:
            OK(poundlock_rwlock_wrlock(&lock));
            one++;
            other++;
            OK(poundlock_rwlock_wrunlock(&lock));
            break;
        case 1:
            OK(poundlock_rwlock_uplock(&lock));
            CHECK(one == other, "a writer beside an upgradable reader");
            long seen = one;
            OK(poundlock_rwlock_upgrade(&lock));
            CHECK(one == seen, "a writer in between");
            one++;
            other++;
            OK(poundlock_rwlock_downgrade(&lock));
            CHECK(one == seen + 1 && other == seen + 1, "a writer beside a reader");
            OK(poundlock_rwlock_rdunlock(&lock));
            break;
        default:
            OK(poundlock_rwlock_rdlock(&lock));
            CHECK(one == other, "a writer beside a reader");
            OK(poundlock_rwlock_rdunlock(&lock));
        }
    }
    return unused;
}

static pthread_barrier_t both_inside;

static void *share(void *unused) {
    OK(poundlock_rwlock_rdlock(&lock));
    pthread_barrier_wait(&both_inside);
    OK(poundlock_rwlock_rdunlock(&lock));
    return unused;
}

int main(void) {
    limit_seconds(LIMIT);
    results();
    STAGE("readers share");
    MUST(pthread_barrier_init(&both_inside, NULL, 2));
    pthread_t reader = spawn(share, NULL);
    share(NULL);
    join(reader);
    upgrades();
    policies();
    STAGE("exclusion");
    long before = one;
    crowd(THREADS, use);
    CHECK(one == before + (long)THREADS * ROUNDS / 2 && one == other, "%ld %ld", one, other);
    return 0;
}
