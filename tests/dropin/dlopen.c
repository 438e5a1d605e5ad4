// Libraries loaded while the program runs, bound in each way there is; they share locks with the program, so
// that both have to have come to the same implementation. RTLD_DEEPBIND is the hard one: such a library looks
// for its symbols in its own dependencies, which is to say libc, before it looks at what was preloaded.
// Arguments: directory of the library, and optionally the word `deepbind`.
#include "check.h"

typedef int (*mutex_call)(pthread_mutex_t *);
static mutex_call library_lock, library_trylock, library_unlock;
static int (*library_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*library_signal)(pthread_cond_t *);

static pthread_mutex_t m;
static pthread_cond_t c;
static volatile long first, second;
static int turn;

static void *adds(void *through_library) {
    for (int i = 0; i < 3000; i++) {
        if (through_library) OK(library_lock(&m));
        else OK(pthread_mutex_lock(&m));
        ALONE(first, second, if (i % 100 == 0) sched_yield());
        if ((i & 1) == (through_library != NULL)) OK(pthread_mutex_unlock(&m));
        else OK(library_unlock(&m));
    }
    return NULL;
}

static void *takes_turns(void *through_library) {
    int me = through_library != NULL;
    OK(pthread_mutex_lock(&m));
    for (int i = 0; i < 200; i++) {
        while (turn % 2 != me)
            if (me) OK(library_wait(&c, &m));
            else OK(pthread_cond_wait(&c, &m));
        turn++;
        if (i % 2) OK(library_signal(&c));
        else OK(pthread_cond_signal(&c));
    }
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void load(const char *path, int flags, const char *how) {
    CASE(how);
    STAGE("load");
    void *library = dlopen(path, flags);
    CHECK(library != NULL, "dlopen: %s", dlerror());
#define FIND(name) CHECK((*(void **)&name = dlsym(library, #name)) != NULL, "dlsym: %s", dlerror())
    FIND(library_lock);
    FIND(library_trylock);
    FIND(library_unlock);
    FIND(library_wait);
    FIND(library_signal);
    STAGE("each side sees the other's lock");
    OK(pthread_mutex_lock(&m));
    CALL(library_trylock(&m), EBUSY);
    OK(library_unlock(&m));
    OK(library_lock(&m));
    CALL(pthread_mutex_trylock(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    STAGE("exclusion between the two");
    first = second = 0;
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) threads[i] = spawn(adds, i % 2 ? (void *)1L : NULL);
    for (int i = 0; i < 4; i++) join(threads[i]);
    CHECK(first == 12000, "%ld additions", first);
    STAGE("signals between the two");
    turn = 0;
    crowd(2, takes_turns);
    STAGE("unload");
    CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
}

int main(int argc, char **argv) {
    limit_seconds(30);
    CHECK(argc > 1, "usage: dlopen DIRECTORY [deepbind]");
    char path[4096];
    snprintf(path, sizeof path, "%s/libdlopen_lib.so", argv[1]);
    OK(pthread_mutex_init(&m, NULL));
    OK(pthread_cond_init(&c, NULL));
    if (argc > 2) {
        load(path, RTLD_NOW | RTLD_DEEPBIND, "deep");
        load(path, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND, "lazy, local, deep");
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        load(path, RTLD_NOW, "now");
        load(path, RTLD_LAZY | RTLD_LOCAL, "lazy, local");
        load(path, RTLD_NOW | RTLD_GLOBAL, "now, global");
    }
    return 0;
}
