// Four threads of a pool wait for work until standard input ends; there is none.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static int over;

static void *worker(void *number) {
    char name[16];
    snprintf(name, sizeof name, "worker-%d", (int)(long)number);
    MUST(pthread_setname_np(pthread_self(), name));
    MUST(pthread_mutex_lock(&lock));
    while (!over) MUST(pthread_cond_wait(&work, &lock));
    MUST(pthread_mutex_unlock(&lock));
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    char byte;
    for (int i = 0; i < 4; i++) threads[i] = spawn(worker, (void *)(long)i);
    while (read(0, &byte, 1) > 0) {
    }
    MUST(pthread_mutex_lock(&lock));
    over = 1;
    MUST(pthread_cond_broadcast(&work));
    MUST(pthread_mutex_unlock(&lock));
    for (int i = 0; i < 4; i++) join(threads[i]);
    return 0;
}
