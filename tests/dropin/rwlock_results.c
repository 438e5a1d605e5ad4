// Every kind of readers-writer lock, made in every way, and what each call on it returns: while it is free,
// while the caller has it as a reader or as the writer, while another thread has it, and after it was
// destroyed. First in a process with one thread, then with two.
#include "rwlock.h"

static const struct timespec bad_nanoseconds[] = {{1, -1}, {1, 1000000000}, {4000000000, 1000000000}};
static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
static const clockid_t bad_clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_BOOTTIME,
                                       12345, -1};

// The time and the clock are judged before anything else.
static void nonsense(pthread_rwlock_t *l) {
    struct timespec later = far_away(CLOCK_REALTIME);
    for (int i = 0; i < 3; i++) {
        CALL(pthread_rwlock_timedrdlock(l, &bad_nanoseconds[i]), EINVAL);
        CALL(pthread_rwlock_timedwrlock(l, &bad_nanoseconds[i]), EINVAL);
        for (int c = 0; c < 2; c++) {
            CALL(pthread_rwlock_clockrdlock(l, clocks[c], &bad_nanoseconds[i]), EINVAL);
            CALL(pthread_rwlock_clockwrlock(l, clocks[c], &bad_nanoseconds[i]), EINVAL);
        }
    }
    for (int i = 0; i < 5; i++) {
        CALL(pthread_rwlock_clockrdlock(l, bad_clocks[i], &later), EINVAL);
        CALL(pthread_rwlock_clockwrlock(l, bad_clocks[i], &later), EINVAL);
    }
}

// Times that have passed; `read` and `write` are what calls as the one and as the other return.
static void late(pthread_rwlock_t *l, int read, int write) {
    const struct timespec times[] = {in_the_past(), {-1, 0}, {-((time_t)1 << 62), 999999999}};
    for (int t = 0; t < 3; t++) {
        CALL(pthread_rwlock_timedrdlock(l, &times[t]), read);
        if (read == 0) OK(pthread_rwlock_unlock(l));
        CALL(pthread_rwlock_timedwrlock(l, &times[t]), write);
        if (write == 0) OK(pthread_rwlock_unlock(l));
        for (int c = 0; c < 2; c++) {
            CALL(pthread_rwlock_clockrdlock(l, clocks[c], &times[t]), read);
            if (read == 0) OK(pthread_rwlock_unlock(l));
            CALL(pthread_rwlock_clockwrlock(l, clocks[c], &times[t]), write);
            if (write == 0) OK(pthread_rwlock_unlock(l));
        }
    }
}

static void free_lock(pthread_rwlock_t *l) {
    STAGE("free: lock and unlock");
    IN_AND_OUT(pthread_rwlock_rdlock(l), l);
    IN_AND_OUT(pthread_rwlock_wrlock(l), l);
    IN_AND_OUT(pthread_rwlock_tryrdlock(l), l);
    IN_AND_OUT(pthread_rwlock_trywrlock(l), l);
    STAGE("free: any time will do, the lock is there at once");
    late(l, 0, 0);
    STAGE("free: nonsense is nonsense");
    nonsense(l);
}

static void read_lock(pthread_rwlock_t *l) {
    STAGE("read by the caller");
    OK(pthread_rwlock_rdlock(l));
    CALL(pthread_rwlock_trywrlock(l), EBUSY);
    STAGE("read by the caller: again and again");
    OK(pthread_rwlock_rdlock(l));
    OK(pthread_rwlock_tryrdlock(l));
    late(l, 0, ETIMEDOUT);
    nonsense(l);
    for (int i = 0; i < 200; i++) OK(pthread_rwlock_rdlock(l));
    for (int i = 0; i < 202; i++) OK(pthread_rwlock_unlock(l));
    CALL(pthread_rwlock_trywrlock(l), EBUSY);
    STAGE("read by the caller: not before its time");
    for (int c = 0; c < 2; c++) {
        struct timespec soon = after_ms(clocks[c], 2);
        CALL(pthread_rwlock_clockwrlock(l, clocks[c], &soon), ETIMEDOUT);
        CHECK(reached(clocks[c], soon), "clockwrlock gave up before its time");
    }
    OK(pthread_rwlock_unlock(l));
    IN_AND_OUT(pthread_rwlock_trywrlock(l), l);
}

static void written_lock(pthread_rwlock_t *l) {
    STAGE("written by the caller");
    OK(pthread_rwlock_wrlock(l));
    CALL(pthread_rwlock_tryrdlock(l), EBUSY);
    CALL(pthread_rwlock_trywrlock(l), EBUSY);
    CALL(pthread_rwlock_rdlock(l), EDEADLK);
    CALL(pthread_rwlock_wrlock(l), EDEADLK);
    late(l, EDEADLK, EDEADLK);
    nonsense(l);
    OK(pthread_rwlock_unlock(l));
    OK(pthread_rwlock_trywrlock(l));
    CALL(pthread_rwlock_wrlock(l), EDEADLK);
    OK(pthread_rwlock_unlock(l));
    IN_AND_OUT(pthread_rwlock_tryrdlock(l), l);
}

static sem_t go, done;
static pthread_rwlock_t *volatile shared;
static volatile int writes;

// Holds the lock between two turns.
static void *holder(void *unused) {
    for (;;) {
        sem_down(&go);
        if (shared == NULL) return NULL;
        if (writes) OK(pthread_rwlock_wrlock(shared));
        else OK(pthread_rwlock_rdlock(shared));
        sem_post(&done);
        sem_down(&go);
        OK(pthread_rwlock_unlock(shared));
        sem_post(&done);
    }
}

static void others_lock(pthread_rwlock_t *l) {
    shared = l;
    for (writes = 0; writes < 2; writes++) {
        STAGE(writes ? "written by another" : "read by another");
        sem_post(&go);
        sem_down(&done);
        CALL(pthread_rwlock_tryrdlock(l), writes ? EBUSY : 0);
        if (!writes) OK(pthread_rwlock_unlock(l));
        CALL(pthread_rwlock_trywrlock(l), EBUSY);
        late(l, writes ? ETIMEDOUT : 0, ETIMEDOUT);
        nonsense(l);
        for (int c = 0; c < 2; c++) {
            struct timespec soon = after_ms(clocks[c], 2);
            CALL(pthread_rwlock_clockwrlock(l, clocks[c], &soon), ETIMEDOUT);
            CHECK(reached(clocks[c], soon), "clockwrlock gave up before its time");
            soon = after_ms(clocks[c], 2);
            CALL(pthread_rwlock_clockrdlock(l, clocks[c], &soon), writes ? ETIMEDOUT : 0);
            if (writes) CHECK(reached(clocks[c], soon), "clockrdlock gave up before its time");
            else OK(pthread_rwlock_unlock(l));
        }
        STAGE("nothing is left behind by those who gave up");
        sem_post(&go);
        sem_down(&done);
        IN_AND_OUT(pthread_rwlock_trywrlock(l), l);
        IN_AND_OUT(pthread_rwlock_tryrdlock(l), l);
    }
}

// The other thread waits for this one, each way that waits without end or with a distant one.
static volatile int way;
static volatile pid_t waiter_id;

static void *waiter(void *lock) {
    pthread_rwlock_t *l = (pthread_rwlock_t *)lock;
    struct timespec real = far_away(CLOCK_REALTIME), mono = far_away(CLOCK_MONOTONIC);
    // Further off than a kernel's nanoseconds reach.
    struct timespec never = {(time_t)((~0ULL) >> 1), 999999999};
    announce(&waiter_id);
    switch (way) {
    case 0: OK(pthread_rwlock_wrlock(l)); break;
    case 1: OK(pthread_rwlock_rdlock(l)); break;
    case 2: OK(pthread_rwlock_timedwrlock(l, &real)); break;
    case 3: OK(pthread_rwlock_timedrdlock(l, &real)); break;
    case 4: OK(pthread_rwlock_clockwrlock(l, CLOCK_REALTIME, &real)); break;
    case 5: OK(pthread_rwlock_clockrdlock(l, CLOCK_REALTIME, &real)); break;
    case 6: OK(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &mono)); break;
    case 7: OK(pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &mono)); break;
    case 8: OK(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &never)); break;
    default: OK(pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &never));
    }
    OK(pthread_rwlock_unlock(l));
    return NULL;
}

static void awaited_lock(pthread_rwlock_t *l) {
    for (way = 0; way < 10; way++)
        for (int reads = 0; reads < 2; reads++) {
            // Readers wait for no reader.
            if (reads && way % 2) continue;
            STAGE(reads ? "hand-over from a reader to a sleeper" : "hand-over from the writer to a sleeper");
            waiter_id = 0;
            if (reads) OK(pthread_rwlock_rdlock(l));
            else OK(pthread_rwlock_wrlock(l));
            pthread_t thread = spawn(waiter, l);
            await_asleep(&waiter_id);
            if (!reads) CALL(pthread_rwlock_wrlock(l), EDEADLK);
            OK(pthread_rwlock_unlock(l));
            join(thread);
            IN_AND_OUT(pthread_rwlock_trywrlock(l), l);
        }
}

static void destroyed_lock(pthread_rwlock_t *l, const struct rwlock_kind *kind) {
    STAGE("destroyed, and made anew");
    OK(pthread_rwlock_destroy(l));
    make_rwlock(l, kind);
    OK(pthread_rwlock_wrlock(l));
    CALL(pthread_rwlock_tryrdlock(l), EBUSY);
    OK(pthread_rwlock_unlock(l));
    IN_AND_OUT(pthread_rwlock_rdlock(l), l);
    OK(pthread_rwlock_destroy(l));
    // Two that hold theirs together, one in the place of the other.
    make_rwlock(l, kind);
    OK(pthread_rwlock_rdlock(l));
    make_rwlock(l, kind);
    IN_AND_OUT(pthread_rwlock_trywrlock(l), l);
    OK(pthread_rwlock_destroy(l));
}

int main(void) {
    limit_seconds(40);
    struct {
        unsigned char before[16];
        pthread_rwlock_t lock;
        unsigned char after[16];
    } place;
    memset(&place, 0x5a, sizeof place);
    pthread_rwlock_t *l = &place.lock;
    for (int threads = 1; threads <= 2; threads++) {
        pthread_t other = 0;
        if (threads == 2) {
            sem_init(&go, 0, 0);
            sem_init(&done, 0, 0);
            other = spawn(holder, NULL);
        }
        for (int k = 0; k < RWLOCK_KINDS; k++) {
            CASE(rwlock_kinds[k].name);
            make_rwlock(l, &rwlock_kinds[k]);
            free_lock(l);
            read_lock(l);
            written_lock(l);
            if (threads == 2) {
                others_lock(l);
                awaited_lock(l);
                read_lock(l);
                written_lock(l);
            }
            destroyed_lock(l, &rwlock_kinds[k]);
        }
        if (threads == 2) {
            shared = NULL;
            sem_post(&go);
            join(other);
        }
    }
    for (unsigned i = 0; i < 16; i++)
        CHECK(place.before[i] == 0x5a && place.after[i] == 0x5a, "a byte beside the lock was written");
    return 0;
}
