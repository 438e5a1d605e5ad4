// The library opened by a program that was not linked with it: `dlopen PATH`. It stays when it is closed.
#include "../dropin/check.h"

#include <dlfcn.h>
#include <poundlock.h>

enum { THREADS = 4, ROUNDS = 10000 };

static int (*lock)(poundlock_mutex_t *), (*unlock)(poundlock_mutex_t *);
static poundlock_mutex_t mutex = POUNDLOCK_MUTEX_INITIALIZER;
static long counter;

static void *count(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(lock(&mutex));
        counter++;
        OK(unlock(&mutex));
    }
    return unused;
}

int main(int argc, char **argv) {
    limit_seconds(50);
    CHECK(argc == 2, "usage: dlopen LIBRARY");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "%s", dlerror());
    *(void **)&lock = dlvsym(library, "poundlock_mutex_lock", "POUNDLOCK_0.1");
    *(void **)&unlock = dlsym(library, "poundlock_mutex_unlock");
    CHECK(lock != NULL && unlock != NULL, "%s", dlerror());
    for (int round = 1; round <= 2; round++) {
        crowd(THREADS, count);
        CHECK(counter == (long)round * THREADS * ROUNDS, "%ld", counter);
        if (round == 1) CHECK(dlclose(library) == 0, "%s", dlerror());
    }
    return 0;
}
