// Nothing can be mapped any more: the address space is at its limit (RLIMIT_AS), or, with any argument, there
// are as many mappings as there may be. Every lock works on: in the threads that were there, more of them
// than Poundlock keeps room for; in new ones, whose stacks are those of threads that have ended; and in a
// child.
#include "check.h"
#include <sys/resource.h>

enum { CROWD = 560, LATER = 4, ROUNDS = 5 };

static sem_t begin, end;
static int crowd_done, crowd_woken, told, leave;
static pthread_mutex_t held[MUTEX_KINDS], shared[MUTEX_KINDS], gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static volatile long first[MUTEX_KINDS], second[MUTEX_KINDS], written, spun;

// What one thread gets from its own locks, and from those that somebody else has.
static void results(const struct mutex_kind *kind) {
    struct timespec past = in_the_past();
    pthread_mutex_t m;
    make_mutex(&m, kind);
    OK(pthread_mutex_lock(&m));
    switch (kind->type) {
    case PTHREAD_MUTEX_RECURSIVE:
        OK(pthread_mutex_lock(&m));
        OK(pthread_mutex_trylock(&m));
        OK(pthread_mutex_timedlock(&m, &past));
        for (int i = 0; i < 3; i++) OK(pthread_mutex_unlock(&m));
        break;
    case PTHREAD_MUTEX_ERRORCHECK:
        CALL(pthread_mutex_lock(&m), EDEADLK);
        CALL(pthread_mutex_timedlock(&m, &past), EDEADLK);
        CALL(pthread_mutex_trylock(&m), EBUSY);
        break;
    default:
        CALL(pthread_mutex_trylock(&m), EBUSY);
        CALL(pthread_mutex_timedlock(&m, &past), ETIMEDOUT);
    }
    pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;
    CALL(pthread_cond_timedwait(&nobody, &m, &past), ETIMEDOUT);
    OK(pthread_cond_destroy(&nobody));
    OK(pthread_mutex_unlock(&m));
    if (kind->type == PTHREAD_MUTEX_RECURSIVE || kind->type == PTHREAD_MUTEX_ERRORCHECK) {
        CALL(pthread_mutex_unlock(&m), EPERM);
        pthread_mutex_t *others = &held[kind - mutex_kinds];
        CALL(pthread_mutex_trylock(others), EBUSY);
        CALL(pthread_mutex_timedlock(others, &past), ETIMEDOUT);
        CALL(pthread_mutex_unlock(others), EPERM);
    }
    OK(pthread_mutex_destroy(&m));
}

static void results_of_others(void) {
    struct timespec past = in_the_past();
    pthread_rwlock_t lock;
    OK(pthread_rwlock_init(&lock, NULL));
    OK(pthread_rwlock_wrlock(&lock));
    CALL(pthread_rwlock_wrlock(&lock), EDEADLK);
    CALL(pthread_rwlock_rdlock(&lock), EDEADLK);
    CALL(pthread_rwlock_timedwrlock(&lock, &past), EDEADLK);
    CALL(pthread_rwlock_trywrlock(&lock), EBUSY);
    OK(pthread_rwlock_unlock(&lock));
    OK(pthread_rwlock_rdlock(&lock));
    OK(pthread_rwlock_tryrdlock(&lock));
    CALL(pthread_rwlock_trywrlock(&lock), EBUSY);
    CALL(pthread_rwlock_timedwrlock(&lock, &past), ETIMEDOUT);
    OK(pthread_rwlock_unlock(&lock));
    OK(pthread_rwlock_unlock(&lock));
    OK(pthread_rwlock_destroy(&lock));
    pthread_spinlock_t spin;
    OK(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    OK(pthread_spin_lock(&spin));
    CALL(pthread_spin_trylock(&spin), EBUSY);
    OK(pthread_spin_unlock(&spin));
    OK(pthread_spin_destroy(&spin));
}

static void all_results(void) {
    for (int k = 0; k < MUTEX_KINDS; k++) results(&mutex_kinds[k]);
    results_of_others();
}

// What all threads do to each other.
static void add_to_all(void) {
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < MUTEX_KINDS; k++) {
            if (mutex_kinds[k].make != MAKE_STATIC) continue;
            OK(pthread_mutex_lock(&shared[k]));
            long v = first[k];
            CHECK(v == second[k], "two holders at once of %s", mutex_kinds[k].name);
            first[k] = v + 1;
            second[k] = v + 1;
            OK(pthread_mutex_unlock(&shared[k]));
        }
        OK(pthread_rwlock_rdlock(&rwlock));
        long seen = written;
        CHECK(seen % 2 == 0, "a reader beside a writer");
        OK(pthread_rwlock_unlock(&rwlock));
        OK(pthread_rwlock_wrlock(&rwlock));
        written = written + 1;
        written = written + 1;
        OK(pthread_rwlock_unlock(&rwlock));
    }
    OK(pthread_spin_lock(&spinlock));
    spun = spun + 1;
    OK(pthread_spin_unlock(&spinlock));
}

// The number of the crowd's and of the later ones' steps is known.
static void check_sums(long threads) {
    for (int k = 0; k < MUTEX_KINDS; k++) {
        if (mutex_kinds[k].make != MAKE_STATIC) continue;
        CHECK(first[k] == threads * ROUNDS, "%s: %ld", mutex_kinds[k].name, first[k]);
    }
    CHECK(written == 2 * threads * ROUNDS && spun == threads, "%ld, %ld", written, spun);
}

static void *in_the_crowd(void *unused) {
    sem_down(&begin);
    all_results();
    add_to_all();
    OK(pthread_mutex_lock(&gate));
    crowd_done++;
    OK(pthread_cond_broadcast(&changed));
    while (told != 1) OK(pthread_cond_wait(&changed, &gate));
    crowd_woken++;
    OK(pthread_cond_broadcast(&changed));
    // Alive until the end: what it uses is not to be had for others.
    while (!leave) OK(pthread_cond_wait(&changed, &gate));
    OK(pthread_mutex_unlock(&gate));
    return unused;
}

static void *leaves_its_stack(void *unused) {
    sem_down(&end);
    return unused;
}

static void *later(void *unused) {
    all_results();
    add_to_all();
    return unused;
}

static void *cancelled(void *unused) {
    OK(pthread_mutex_lock(&gate));
    told = -1;
    pthread_cleanup_push((void (*)(void *))(void *)pthread_mutex_unlock, &gate);
    for (;;) OK(pthread_cond_wait(&changed, &gate));
    pthread_cleanup_pop(1);
    return unused;
}

// It holds mutexes and forks. In the child glibc knows no owner of those that check for one; with ours it is
// that thread.
static void *forks(void *unused) {
    pthread_mutex_t mine[MUTEX_KINDS];
    for (int k = 0; k < MUTEX_KINDS; k++) {
        make_mutex(&mine[k], &mutex_kinds[k]);
        OK(pthread_mutex_lock(&mine[k]));
    }
    pid_t child = fork_limited(30);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        int type = mutex_kinds[k].type;
        int owned = type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK;
        int unlocked = pthread_mutex_unlock(&mine[k]);
        CHECK(unlocked == 0 || (child == 0 && owned && unlocked == EPERM), "unlock: got %d (%s)", unlocked,
              strerror(unlocked));
    }
    if (child == 0) {
        all_results();
        _exit(0);
    }
    await_child(child);
    return unused;
}

static void limit_space(void) {
    struct rlimit none = {4096, 4096};
    SYS(setrlimit(RLIMIT_AS, &none));
}

// Every other page gets other rights, until the kernel has had enough of it.
static void use_up_mappings(void) {
    enum { MOST = 200000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int lazy = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, shared_page = MAP_SHARED | MAP_ANONYMOUS;
    char *region = (char *)mmap(NULL, 2 * MOST * page, PROT_NONE, lazy, -1, 0);
    CHECK(region != MAP_FAILED, "mmap: %s", strerror(errno));
    for (long i = 0; i < MOST; i++) {
        if (mprotect(region + 2 * i * page, page, PROT_READ) == 0) continue;
        CHECK(errno == ENOMEM, "mprotect: %s", strerror(errno));
        // The last one of all: the one above may have needed two.
        while (mmap(NULL, page, i % 2 ? PROT_READ : PROT_WRITE, shared_page, -1, 0) != MAP_FAILED) i++;
        return;
    }
    dprintf(2, "more than %d mappings are allowed here\n", 2 * MOST);
    _exit(77);
}

// What the first thread has held all the while is still its own.
static void all_held_by_main(void) {
    for (int k = 0; k < MUTEX_KINDS; k++) {
        int recursive = mutex_kinds[k].type == PTHREAD_MUTEX_RECURSIVE;
        CALL(pthread_mutex_trylock(&held[k]), recursive ? 0 : EBUSY);
        if (recursive) OK(pthread_mutex_unlock(&held[k]));
    }
}

// The stack of the first thread grows by mapping.
static __attribute__((noinline)) void touch_stack(void) {
    volatile char room[256 * 1024];
    for (size_t i = 0; i < sizeof room; i += 1024) room[i] = 1;
}

int main(int argc, char **argv) {
    limit_seconds(90);
    touch_stack();
    SYS(sem_init(&begin, 0, 0));
    SYS(sem_init(&end, 0, 0));
    MUST(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    pthread_attr_t small;
    MUST(pthread_attr_init(&small));
    MUST(pthread_attr_setstacksize(&small, (size_t)sysconf(_SC_THREAD_STACK_MIN) + 65536));

    STAGE("threads before the limit");
    static pthread_t crowd[CROWD + LATER];
    for (int i = 0; i < CROWD; i++) MUST(pthread_create(&crowd[i], &small, in_the_crowd, NULL));
    // Theirs are the stacks of those that come later.
    for (int i = 0; i < LATER; i++) MUST(pthread_create(&crowd[CROWD + i], &small, leaves_its_stack, NULL));
    // The C library loads another one for the first cancellation.
    MUST(pthread_cancel(crowd[CROWD]));
    for (int i = 0; i < LATER; i++) SYS(sem_post(&end));
    for (int i = 0; i < LATER; i++) join(crowd[CROWD + i]);

    STAGE("nothing can be mapped");
    if (argc > 1) {
        use_up_mappings();
    } else {
        limit_space();
    }
    void *none = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(none == MAP_FAILED && errno == ENOMEM, "there is no limit");
    for (int k = 0; k < MUTEX_KINDS; k++) {
        make_mutex(&held[k], &mutex_kinds[k]);
        make_mutex(&shared[k], &mutex_kinds[k]);
        OK(pthread_mutex_lock(&held[k]));
    }
    for (int i = 0; i < CROWD; i++) SYS(sem_post(&begin));
    OK(pthread_mutex_lock(&gate));
    while (crowd_done < CROWD) OK(pthread_cond_wait(&changed, &gate));
    OK(pthread_mutex_unlock(&gate));
    all_held_by_main();
    check_sums(CROWD);

    STAGE("threads after the limit");
    for (int i = 0; i < LATER; i++) MUST(pthread_create(&crowd[CROWD + i], &small, later, NULL));
    for (int i = 0; i < LATER; i++) join(crowd[CROWD + i]);
    check_sums(CROWD + LATER);
    MUST(pthread_create(&crowd[CROWD], &small, forks, NULL));
    join(crowd[CROWD]);
    MUST(pthread_create(&crowd[CROWD], &small, cancelled, NULL));
    for (int seen = 0; seen != -1;) {
        OK(pthread_mutex_lock(&gate));
        seen = told;
        OK(pthread_mutex_unlock(&gate));
    }
    MUST(pthread_cancel(crowd[CROWD]));
    CHECK(join(crowd[CROWD]) == PTHREAD_CANCELED, "not cancelled");

    STAGE("the crowd ends");
    OK(pthread_mutex_lock(&gate));
    told = 1;
    OK(pthread_cond_broadcast(&changed));
    while (crowd_woken < CROWD) OK(pthread_cond_wait(&changed, &gate));
    leave = 1;
    OK(pthread_cond_broadcast(&changed));
    OK(pthread_mutex_unlock(&gate));
    for (int i = 0; i < CROWD; i++) join(crowd[i]);
    return 0;
}
