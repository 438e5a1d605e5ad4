// Who comes in, by kind: a thread that reads may read again whoever waits, except with the kind that says it
// will not, where a waiting writer keeps newcomers out and goes first. Waiters are known to sleep before
// anybody goes on.
#include "rwlock.h"

static pthread_rwlock_t l;
static volatile int next_ticket;
static sem_t leave;

struct guest {
    pthread_t thread;
    int writes;
    volatile pid_t id;
    volatile int ticket; // in which order they came in
};

static void *visit(void *argument) {
    struct guest *guest = (struct guest *)argument;
    announce(&guest->id);
    if (guest->writes) OK(pthread_rwlock_wrlock(&l));
    else OK(pthread_rwlock_rdlock(&l));
    guest->ticket = __atomic_add_fetch(&next_ticket, 1, __ATOMIC_SEQ_CST);
    sem_down(&leave);
    OK(pthread_rwlock_unlock(&l));
    return NULL;
}

static void send(struct guest *guest, int writes) {
    memset(guest, 0, sizeof *guest);
    guest->writes = writes;
    guest->thread = spawn(visit, guest);
}

static void await_queued(struct guest *guest) {
    await_asleep(&guest->id);
    CHECK(guest->ticket == 0, "a %s is inside that should wait", guest->writes ? "writer" : "reader");
}

static void *tries_to_read(void *unused) {
    errno = ERRNO_SENTINEL;
    int result = pthread_rwlock_tryrdlock(&l);
    CHECK(errno == ERRNO_SENTINEL, "tryrdlock changed errno");
    if (result == 0) OK(pthread_rwlock_unlock(&l));
    return (void *)(long)result;
}

static int stranger_reads(void) { return (int)(long)join(spawn(tries_to_read, NULL)); }

static void reads_on(void) {
    struct timespec past = in_the_past(), far = far_away(CLOCK_MONOTONIC);
    struct guest writer, reader;
    next_ticket = 0;
    STAGE("a writer waits for a reader");
    OK(pthread_rwlock_rdlock(&l));
    send(&writer, 1);
    await_queued(&writer);
    STAGE("the reader reads again");
    OK(pthread_rwlock_rdlock(&l));
    OK(pthread_rwlock_tryrdlock(&l));
    OK(pthread_rwlock_timedrdlock(&l, &past));
    OK(pthread_rwlock_clockrdlock(&l, CLOCK_MONOTONIC, &far));
    for (int i = 0; i < 1000; i++) {
        IN_AND_OUT(pthread_rwlock_rdlock(&l), &l);
    }
    STAGE("another reads, too");
    CHECK(stranger_reads() == 0, "a reader was kept out");
    send(&reader, 0);
    while (reader.ticket == 0) usleep(100);
    CHECK(writer.ticket == 0, "the writer is inside with readers");
    STAGE("the readers leave, and the writer comes in");
    for (int i = 0; i < 5; i++) OK(pthread_rwlock_unlock(&l));
    CALL(pthread_rwlock_trywrlock(&l), EBUSY);
    sem_post(&leave);
    join(reader.thread);
    while (writer.ticket == 0) usleep(100);
    CHECK(stranger_reads() == EBUSY, "a reader is inside with the writer");
    sem_post(&leave);
    join(writer.thread);
    CHECK(stranger_reads() == 0, "it is not free");
}

static void writers_first(void) {
    struct guest first, reader, second;
    next_ticket = 0;
    STAGE("a writer waits for a reader: newcomers do not pass");
    OK(pthread_rwlock_rdlock(&l));
    send(&first, 1);
    await_queued(&first);
    CHECK(stranger_reads() == EBUSY, "a reader passed a waiting writer");
    send(&reader, 0);
    await_queued(&reader);
    send(&second, 1);
    await_queued(&second);
    STAGE("the reader leaves: both writers come in before the reader that waits");
    OK(pthread_rwlock_unlock(&l));
    while (first.ticket == 0 && second.ticket == 0) usleep(100);
    sem_post(&leave);
    while (first.ticket == 0 || second.ticket == 0) usleep(100);
    CHECK(reader.ticket == 0, "the reader came before a writer");
    sem_post(&leave);
    join(first.thread);
    join(second.thread);
    sem_post(&leave);
    join(reader.thread);
    CHECK(reader.ticket == 3, "the reader came in as number %d", reader.ticket);
}

// Writers that give up leave the way open again.
static void *gives_up(void *argument) {
    struct timespec soon = after_ms(CLOCK_MONOTONIC, 3);
    announce((volatile pid_t *)argument);
    CALL(pthread_rwlock_clockwrlock(&l, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    return NULL;
}

static void writer_gives_up(void) {
    static volatile pid_t id;
    STAGE("a writer waits for a reader, and gives up");
    id = 0;
    OK(pthread_rwlock_rdlock(&l));
    pthread_t thread = spawn(gives_up, (void *)&id);
    join(thread);
    CHECK(stranger_reads() == 0, "a writer that has left keeps readers out");
    OK(pthread_rwlock_unlock(&l));
    IN_AND_OUT(pthread_rwlock_trywrlock(&l), &l);
}

int main(void) {
    limit_seconds(40);
    sem_init(&leave, 0, 0);
    for (int k = 0; k < RWLOCK_KINDS; k++) {
        CASE(rwlock_kinds[k].name);
        make_rwlock(&l, &rwlock_kinds[k]);
        for (int i = 0; i < 3; i++) {
            if (rwlock_kinds[k].kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) writers_first();
            else reads_on();
            writer_gives_up();
        }
        OK(pthread_rwlock_destroy(&l));
    }
    return 0;
}
