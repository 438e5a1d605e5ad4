// Every name under which a program can reach these calls leads to one library, whose file name is the argument:
// by direct reference, by pointer, by dlsym, and by dlvsym with each version that glibc has of it. (To one of
// several, if there are more arguments: glibc before 2.34 is in several files.)
#include "check.h"
#include <gnu/libc-version.h>
#include <sys/sem.h>

struct symbol {
    const char *name;
    void *direct;
    const char *versions[3];
};

#define NEW "GLIBC_2.34"
#if defined __x86_64__
#define FIRST "GLIBC_2.2.5"
#define COND "GLIBC_2.3.2"
#define SEMTIMEDOP "GLIBC_2.3.3"
#define JOIN "GLIBC_2.3.3"
#else
#define FIRST "GLIBC_2.17"
#define COND "GLIBC_2.17"
#define SEMTIMEDOP "GLIBC_2.17"
#define JOIN "GLIBC_2.17"
#endif

static const struct symbol symbols[] = {
    {"pthread_mutex_init", (void *)pthread_mutex_init, {FIRST}},
    {"pthread_mutex_destroy", (void *)pthread_mutex_destroy, {FIRST}},
    {"pthread_mutex_lock", (void *)pthread_mutex_lock, {FIRST}},
    {"pthread_mutex_unlock", (void *)pthread_mutex_unlock, {FIRST}},
    {"pthread_mutex_trylock", (void *)pthread_mutex_trylock, {FIRST, NEW}},
    {"pthread_mutex_timedlock", (void *)pthread_mutex_timedlock, {FIRST, NEW}},
    {"pthread_mutex_clocklock", (void *)pthread_mutex_clocklock, {"GLIBC_2.30", NEW}},
    {"pthread_cond_init", (void *)pthread_cond_init, {COND, FIRST}},
    {"pthread_cond_destroy", (void *)pthread_cond_destroy, {COND, FIRST}},
    {"pthread_cond_wait", (void *)pthread_cond_wait, {COND, FIRST}},
    {"pthread_cond_timedwait", (void *)pthread_cond_timedwait, {COND, FIRST}},
    {"pthread_cond_clockwait", (void *)pthread_cond_clockwait, {"GLIBC_2.30", NEW}},
    {"pthread_cond_signal", (void *)pthread_cond_signal, {COND, FIRST}},
    {"pthread_cond_broadcast", (void *)pthread_cond_broadcast, {COND, FIRST}},
    {"mtx_init", (void *)mtx_init, {"GLIBC_2.28", NEW}},
    {"mtx_destroy", (void *)mtx_destroy, {"GLIBC_2.28", NEW}},
    {"mtx_lock", (void *)mtx_lock, {"GLIBC_2.28", NEW}},
    {"mtx_trylock", (void *)mtx_trylock, {"GLIBC_2.28", NEW}},
    {"mtx_timedlock", (void *)mtx_timedlock, {"GLIBC_2.28", NEW}},
    {"mtx_unlock", (void *)mtx_unlock, {"GLIBC_2.28", NEW}},
    {"cnd_init", (void *)cnd_init, {"GLIBC_2.28", NEW}},
    {"cnd_destroy", (void *)cnd_destroy, {"GLIBC_2.28", NEW}},
    {"cnd_wait", (void *)cnd_wait, {"GLIBC_2.28", NEW}},
    {"cnd_timedwait", (void *)cnd_timedwait, {"GLIBC_2.28", NEW}},
    {"cnd_signal", (void *)cnd_signal, {"GLIBC_2.28", NEW}},
    {"cnd_broadcast", (void *)cnd_broadcast, {"GLIBC_2.28", NEW}},
    {"pthread_spin_init", (void *)pthread_spin_init, {FIRST, NEW}},
    {"pthread_spin_destroy", (void *)pthread_spin_destroy, {FIRST, NEW}},
    {"pthread_spin_lock", (void *)pthread_spin_lock, {FIRST, NEW}},
    {"pthread_spin_trylock", (void *)pthread_spin_trylock, {FIRST, NEW}},
    {"pthread_spin_unlock", (void *)pthread_spin_unlock, {FIRST, NEW}},
    {"pthread_rwlock_init", (void *)pthread_rwlock_init, {FIRST, NEW}},
    {"pthread_rwlock_destroy", (void *)pthread_rwlock_destroy, {FIRST, NEW}},
    {"pthread_rwlock_rdlock", (void *)pthread_rwlock_rdlock, {FIRST, NEW}},
    {"pthread_rwlock_tryrdlock", (void *)pthread_rwlock_tryrdlock, {FIRST, NEW}},
    {"pthread_rwlock_timedrdlock", (void *)pthread_rwlock_timedrdlock, {FIRST, NEW}},
    {"pthread_rwlock_clockrdlock", (void *)pthread_rwlock_clockrdlock, {"GLIBC_2.30", NEW}},
    {"pthread_rwlock_wrlock", (void *)pthread_rwlock_wrlock, {FIRST, NEW}},
    {"pthread_rwlock_trywrlock", (void *)pthread_rwlock_trywrlock, {FIRST, NEW}},
    {"pthread_rwlock_timedwrlock", (void *)pthread_rwlock_timedwrlock, {FIRST, NEW}},
    {"pthread_rwlock_clockwrlock", (void *)pthread_rwlock_clockwrlock, {"GLIBC_2.30", NEW}},
    {"pthread_rwlock_unlock", (void *)pthread_rwlock_unlock, {FIRST, NEW}},
    {"sem_wait", (void *)sem_wait, {FIRST, NEW}},
    {"sem_timedwait", (void *)sem_timedwait, {FIRST, NEW}},
    {"sem_clockwait", (void *)sem_clockwait, {"GLIBC_2.30", NEW}},
    {"pthread_barrier_wait", (void *)pthread_barrier_wait, {FIRST, NEW}},
    {"pthread_join", (void *)pthread_join, {FIRST, NEW}},
    {"pthread_timedjoin_np", (void *)pthread_timedjoin_np, {JOIN, NEW}},
    {"pthread_clockjoin_np", (void *)pthread_clockjoin_np, {"GLIBC_2.31", NEW}},
    {"thrd_join", (void *)thrd_join, {"GLIBC_2.28", NEW}},
    {"semget", (void *)semget, {FIRST}},
    {"semop", (void *)semop, {FIRST}},
    {"semtimedop", (void *)semtimedop, {SEMTIMEDOP}},
    {"semctl", (void *)semctl, {FIRST}},
    {"_exit", (void *)_exit, {FIRST}},
    {"_Exit", (void *)_Exit, {FIRST}},
    {"__pthread_mutex_init", NULL, {FIRST}},
    {"__pthread_mutex_destroy", NULL, {FIRST}},
    {"__pthread_mutex_lock", NULL, {FIRST}},
    {"__pthread_mutex_trylock", NULL, {FIRST}},
    {"__pthread_mutex_unlock", NULL, {FIRST}},
};

static int wrong;

// Whether this glibc is new enough to have the version.
static int there(const char *version) {
    return atoi(version + strlen("GLIBC_2.")) <= atoi(gnu_get_libc_version() + strlen("2."));
}

// Reports every one that is wrong, not the first alone: the list is what somebody wants to see.
static void in_library(const char *name, const char *how, const char *version, void *address,
                       char **libraries) {
    Dl_info info;
    const char *file = "(not found)";
    if (address != NULL) {
        CHECK(dladdr(address, &info) != 0, "%s: dladdr knows nothing about %p", name, address);
        const char *slash = strrchr(info.dli_fname, '/');
        file = slash ? slash + 1 : info.dli_fname;
    }
    for (char **library = libraries; *library != NULL; library++)
        if (strcmp(file, *library) == 0) return;
    dprintf(2, "%s%s%s, by %s: in %s, expected in %s\n", name, *version ? "@" : "", version, how, file,
            *libraries);
    wrong++;
}

int main(int argc, char **argv) {
    limit_seconds(10);
    CHECK(argc >= 2, "usage: symbols LIBRARY...");
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        const struct symbol *s = &symbols[i];
        if (s->direct != NULL) in_library(s->name, "reference", "", s->direct, argv + 1);
        const struct {
            const char *how;
            void *address;
        } unversioned[] = {{"dlsym(RTLD_DEFAULT)", dlsym(RTLD_DEFAULT, s->name)},
                           {"dlsym(RTLD_NEXT) from the program", dlsym(RTLD_NEXT, s->name)},
                           {"dlsym on the program", dlsym(dlopen(NULL, RTLD_NOW), s->name)}};
        for (int i = 0; i < 3; i++) {
            // glibc hides its underscored names from those who name no version.
            if (s->direct == NULL && unversioned[i].address == NULL) continue;
            in_library(s->name, unversioned[i].how, "", unversioned[i].address, argv + 1);
        }
        for (int v = 0; v < 3 && s->versions[v] != NULL; v++) {
            if (!there(s->versions[v])) continue;
            in_library(s->name, "dlvsym(RTLD_DEFAULT)", s->versions[v],
                       dlvsym(RTLD_DEFAULT, s->name, s->versions[v]), argv + 1);
            in_library(s->name, "dlvsym(RTLD_NEXT) from the program", s->versions[v],
                       dlvsym(RTLD_NEXT, s->name, s->versions[v]), argv + 1);
        }
    }
    CHECK(wrong == 0, "%d symbols are not in %s", wrong, argv[1]);
    return 0;
}
