// A readers-writer lock whose holder sleeps in read(2) until standard input ends. The argument says who waits
// for whom: "writer", for two readers; or "reader", for a writer.
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t held;

static void *in_read(void *unused) {
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return unused;
}

static void *reader(void *unused) {
    MUST(pthread_rwlock_rdlock(&lock));
    pthread_barrier_wait(&held);
    in_read(NULL);
    MUST(pthread_rwlock_unlock(&lock));
    return unused;
}

static void *writer(void *unused) {
    MUST(pthread_rwlock_wrlock(&lock));
    pthread_barrier_wait(&held);
    in_read(NULL);
    MUST(pthread_rwlock_unlock(&lock));
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "who waits?");
    int writer_waits = !strcmp(argv[1], "writer"), holders = writer_waits ? 2 : 1;
    pthread_t threads[2];
    MUST(pthread_barrier_init(&held, NULL, (unsigned)holders + 1));
    for (int i = 0; i < holders; i++) threads[i] = spawn(writer_waits ? reader : writer, NULL);
    pthread_barrier_wait(&held);
    MUST(writer_waits ? pthread_rwlock_wrlock(&lock) : pthread_rwlock_rdlock(&lock));
    MUST(pthread_rwlock_unlock(&lock));
    for (int i = 0; i < holders; i++) join(threads[i]);
    return 0;
}
