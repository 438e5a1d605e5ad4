// A thread ends while it holds a lock, and two others wait for the lock for ever. The arguments say which lock
// (mutex, recursive, read, write or spin), and how the thread ends: "return", "exit" (pthread_exit), "cancel", or
// "main", where it is the first thread of the process. A third argument says that the lock is released after all:
// "by" another thread, or in a "destructor" of the thread. Then one of the two waiters has the lock until standard
// input ends.
static pthread_mutex_t mutex_left = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive_left = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t shared_left = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin_left;
static pthread_t first;
static pthread_key_t key;
static const char *kind, *way, *released;

static int is(const char *wanted) { return !strcmp(kind, wanted); }

static void take(int again) {
    if (is("mutex")) MUST(pthread_mutex_lock(&mutex_left)); // TAKEN
    else if (is("recursive")) MUST(pthread_mutex_lock(&recursive_left)); // TAKEN
    else if (is("read") && !again) MUST(pthread_rwlock_rdlock(&shared_left)); // TAKEN
    else if (is("spin")) MUST(pthread_spin_lock(&spin_left)); // TAKEN
    else MUST(pthread_rwlock_wrlock(&shared_left)); // TAKEN
}

static void release(void) {
    if (is("mutex")) MUST(pthread_mutex_unlock(&mutex_left));
    else if (is("recursive")) MUST(pthread_mutex_unlock(&recursive_left));
    else if (is("spin")) MUST(pthread_spin_unlock(&spin_left));
    else MUST(pthread_rwlock_unlock(&shared_left));
}

static void destroyed(void *value) {
    // In the last round of destructors.
    if ((long)value < PTHREAD_DESTRUCTOR_ITERATIONS) MUST(pthread_setspecific(key, (char *)value + 1));
    else release();
}

static void *loader(void *unused) {
    pthread_setname_np(pthread_self(), "loader");
    // Recorders time the first holds, and few of those that follow.
    for (int i = 0; i < 40; i++) {
        take(0);
        release();
    }
    take(0);
    if (is("recursive")) take(0);
    if (released && !strcmp(released, "destructor")) MUST(pthread_setspecific(key, (void *)1));
    if (!strcmp(way, "cancel")) {
        MUST(pthread_cancel(pthread_self()));
        pthread_testcancel();
    }
    if (strcmp(way, "return")) pthread_exit(NULL);
    return unused;
}

static int ids[2];

static void *waiter(void *number) {
    int me = (int)(long)number;
    pthread_setname_np(pthread_self(), me ? "second" : "first");
    // It may have got what the loader left: its record, its stack, its id.
    MUST(pthread_mutex_lock(&other));
    MUST(pthread_mutex_unlock(&other));
    __atomic_store_n(&ids[me], (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    take(1);
    char byte;
    while (released && !me && read(0, &byte, 1) > 0) {
    }
    release();
    return NULL;
}

static void *rest(void *unused) {
    MUST(pthread_join(first, NULL));
    if (released && !strcmp(released, "by")) release();
    pthread_t waiters[2];
    for (long i = 0; i < 2; i++) {
        MUST(pthread_create(&waiters[i], NULL, waiter, (void *)i));
        while (!__atomic_load_n(&ids[i], __ATOMIC_SEQ_CST)) usleep(1000);
        // One that spins does not sleep.
        if (!is("spin") || (released && !i)) await_sleep(&ids[i]);
    }
    puts("stuck");
    fflush(stdout);
    for (int i = 0; i < 2; i++) MUST(pthread_join(waiters[i], NULL));
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 3 || argc == 4, "which lock, and how?");
    kind = argv[1], way = argv[2], released = argv[3];
    MUST(pthread_key_create(&key, destroyed));
    MUST(pthread_spin_init(&spin_left, PTHREAD_PROCESS_PRIVATE));
    if (!strcmp(way, "main")) {
        first = pthread_self();
        spawn(rest, NULL);
        return (int)(long)loader(NULL);
    }
    first = spawn(loader, NULL);
    rest(NULL);
    return 0;
}
