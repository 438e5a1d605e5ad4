// As many threads as the first argument says, each of which holds a mutex and waits for that of the next one.
// The second argument is "chain": the last one sleeps in read(2) until standard input ends, and one more
// thread waits for the first mutex; or "cycle": the last one waits for the first.
enum { MOST = 4 };

// Each of a name of its own.
static struct {
    pthread_mutex_t a, b, c, d;
} of;
static pthread_mutex_t *const locks[MOST] = {&of.a, &of.b, &of.c, &of.d};
static pthread_barrier_t all_hold;
static int count, is_cycle;

static void *link_of(void *argument) {
    int number = (int)(long)argument;
    MUST(pthread_mutex_lock(locks[number]));
    pthread_barrier_wait(&all_hold);
    if (number + 1 < count || is_cycle) {
        MUST(pthread_mutex_lock(locks[(number + 1) % count])); // NEXT
        MUST(pthread_mutex_unlock(locks[(number + 1) % count]));
    } else {
        char byte;
        while (read(0, &byte, 1) > 0) {
        }
    }
    MUST(pthread_mutex_unlock(locks[number]));
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "how many threads, and chain or cycle?");
    count = atoi(argv[1]);
    CHECK(0 < count && count <= MOST, "from 1 to %d threads", MOST);
    is_cycle = !strcmp(argv[2], "cycle");
    pthread_t threads[MOST];
    for (int i = 0; i < count; i++) MUST(pthread_mutex_init(locks[i], NULL));
    MUST(pthread_barrier_init(&all_hold, NULL, (unsigned)count + 1));
    for (int i = 0; i < count; i++) threads[i] = spawn(link_of, (void *)(long)i);
    pthread_barrier_wait(&all_hold);
    if (!is_cycle) {
        MUST(pthread_mutex_lock(locks[0]));
        MUST(pthread_mutex_unlock(locks[0]));
    }
    for (int i = 0; i < count; i++) join(threads[i]);
    return 0;
}
