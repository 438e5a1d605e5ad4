// Libraries that wrap lock calls (next_lib.c) before or behind the locks, which have to work. Each argument
// says of one of them where the next definition of a call lies for it, and whether the program's calls come
// through it: NAME:FILE:seen, NAME:FILE:unseen or NAME:FILE:any. The first argument is the file in which the
// program itself finds the first definition with a version.
#include "check.h"

enum { THREADS = 3, ROUNDS = 2000 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t s;
static long counts[4];
static int turn;

static void *adds(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec far = far_away(CLOCK_REALTIME);
        OK(pthread_mutex_lock(&m));
        counts[0]++;
        while (turn % THREADS != (int)(long)number)
            if (i % 2) OK(pthread_cond_wait(&c, &m));
            else OK(pthread_cond_timedwait(&c, &m, &far));
        turn++;
        OK(pthread_cond_broadcast(&c));
        OK(pthread_mutex_unlock(&m));
        OK(pthread_mutex_timedlock(&m, &far));
        counts[1]++;
        OK(pthread_mutex_unlock(&m));
        OK(pthread_rwlock_wrlock(&l));
        counts[2]++;
        OK(pthread_rwlock_unlock(&l));
        IN_AND_OUT(pthread_rwlock_rdlock(&l), &l);
        OK(pthread_spin_lock(&s));
        counts[3]++;
        OK(pthread_spin_unlock(&s));
    }
    return NULL;
}

static const char *file_of(void *address) {
    Dl_info info;
    if (address == NULL || dladdr(address, &info) == 0) return "(nowhere)";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

#if defined __x86_64__
static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.3.2"};
#else
static const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.17"};
#endif
static const char *const names[] = {"pthread_mutex_lock", "pthread_cond_wait"};

int main(int argc, char **argv) {
    limit_seconds(60);
    CHECK(argc >= 2, "usage: next FILE [NAME:FILE:seen|unseen|any]...");
    STAGE("the first definition");
    for (int i = 0; i < 2; i++) {
        const char *file = file_of(dlvsym(RTLD_DEFAULT, names[i], versions[i]));
        CHECK(strcmp(file, argv[1]) == 0, "%s: in %s, expected in %s", names[i], file, argv[1]);
    }
    STAGE("locks");
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    // A call on one that is neither initialised nor waited on yet may be passed on.
    OK(pthread_cond_init(&c, NULL));
    crowd(THREADS, adds);
    for (int i = 0; i < 4; i++) CHECK(counts[i] == THREADS * ROUNDS, "count %d is %ld", i, counts[i]);
    struct timespec soon = after_ms(CLOCK_REALTIME, 20);
    OK(pthread_mutex_lock(&m));
    CALL(pthread_cond_timedwait(&c, &m, &soon), ETIMEDOUT);
    CHECK(reached(CLOCK_REALTIME, soon), "timed out early");
    OK(pthread_mutex_unlock(&m));
    for (int i = 2; i < argc; i++) {
        char text[200], *place = text;
        snprintf(text, sizeof text, "%s", argv[i]);
        const char *library = strsep(&place, ":"), *file = strsep(&place, ":"), *seen = place;
        CASE(argv[i]);
        STAGE("the next definition");
        char symbol[100];
        void *(*next)(const char *, const char *);
        unsigned long (*calls)(void);
        snprintf(symbol, sizeof symbol, "%s_next", library);
        CHECK((*(void **)&next = dlsym(RTLD_DEFAULT, symbol)) != NULL, "%s", dlerror());
        snprintf(symbol, sizeof symbol, "%s_calls", library);
        CHECK((*(void **)&calls = dlsym(RTLD_DEFAULT, symbol)) != NULL, "%s", dlerror());
        for (int i = 0; i < 2; i++) {
            const char *found = file_of(next(names[i], versions[i]));
            CHECK(strcmp(found, file) == 0, "%s: next in %s, expected in %s", names[i], found, file);
        }
        STAGE("calls");
        // Those that have one version alone, and so come through every library.
        if (strcmp(seen, "seen") == 0) CHECK(calls() >= 2UL * THREADS * ROUNDS, "%lu calls", calls());
        if (strcmp(seen, "unseen") == 0) CHECK(calls() == 0, "%lu calls", calls());
    }
    return 0;
}
