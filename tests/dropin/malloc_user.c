// A program whose malloc takes pthread mutexes (malloc_lib.c, linked or preloaded), or is another
// allocator's, in the file that the argument names: many threads allocate, in themselves, in thread creation
// and exit, in thread-specific destructors, while they hold locks of their own, and in children.
#include "check.h"

enum { THREADS = 8, BLOCKS = 64, ROUNDS = 1500 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static __thread char thread_local_storage[3000];
static int turn, finished;

static void frees(void *p) {
    OK(pthread_mutex_lock(&m));
    free(p);
    free(malloc(100));
    OK(pthread_mutex_unlock(&m));
}

static void *nothing(void *p) { return p; }

static void *allocates(void *number) {
    unsigned random = (unsigned)(long)number * 977 + 1;
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    memset(thread_local_storage, 1, sizeof thread_local_storage);
    MUST(pthread_setspecific(key, malloc(77)));
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        int b = (int)(random >> 16) % BLOCKS;
        if (blocks[b] != NULL) {
            unsigned char mark = (unsigned char)(b + (long)number * 31);
            CHECK(blocks[b][0] == mark && blocks[b][sizes[b] - 1] == mark, "a block was given out twice");
            free(blocks[b]);
            blocks[b] = NULL;
        } else {
            sizes[b] = 1 + (random >> 8) % 5000;
            int held = random % 7 == 0;
            if (held) OK(pthread_mutex_lock(&m));
            blocks[b] = (unsigned char *)(random % 3 == 0 ? calloc(sizes[b], 1) : malloc(sizes[b]));
            if (held) OK(pthread_mutex_unlock(&m));
            CHECK(blocks[b] != NULL, "out of memory");
            memset(blocks[b], (int)(b + (long)number * 31) & 255, sizes[b]);
        }
        if (i % 100 == 50) {
            pthread_t thread = spawn(nothing, NULL);
            join(thread);
        }
    }
    for (int b = 0; b < BLOCKS; b++) free(blocks[b]);
    OK(pthread_mutex_lock(&m));
    turn++;
    OK(pthread_cond_broadcast(&c));
    while (turn < THREADS) OK(pthread_cond_wait(&c, &m));
    finished++;
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(60);
    if (argc > 1) {
        STAGE("the allocator is the one in the file that the argument names");
        Dl_info info;
        CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0, "malloc is nowhere");
        CHECK(strstr(info.dli_fname, argv[1]) != NULL, "malloc is in %s", info.dli_fname);
    } else {
        STAGE("the allocator is the one that locks");
        volatile unsigned long *calls = (volatile unsigned long *)dlsym(RTLD_DEFAULT, "malloc_lib_calls");
        CHECK(calls != NULL, "malloc_lib is not loaded");
        unsigned long before = *calls;
        void *volatile p = malloc(10);
        free(p);
        CHECK(*calls > before, "malloc is not malloc_lib's");
    }
    MUST(pthread_key_create(&key, frees));
    STAGE("allocate");
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = spawn(allocates, (void *)i);
    for (int i = 0; i < 20; i++) {
        IN_CHILD(20) {
            for (int n = 1; n < 2000; n++) free(malloc((size_t)n));
            join(spawn(nothing, NULL));
        }
    }
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    CHECK(finished == THREADS, "%d finished", finished);
    return 0;
}
