// A plugin that has the locks linked into it is unloaded as soon as its last lock is unlocked:
// `unload PLUGIN`.
//
// A thread that has unlocked a lock by a restartable sequence may not leave behind where that is described:
// the kernel looks it up when it next interrupts the thread, by a signal or to let others run, and ends the
// process if it is gone.
#include "../dropin/check.h"

#include <dlfcn.h>

enum { ROUNDS = 50 };

// Of two mutexes.
static void (*lock)(int), (*unlock)(int);
static volatile pid_t waiter, sleeper;
static sem_t unloaded;

static void nothing(int signal_number) { (void)signal_number; }

static void *waits(void *which) {
    announce(&waiter);
    lock((int)(long)which);
    unlock((int)(long)which);
    return NULL;
}

// Sleeps from before the plugin goes until afterwards.
static void *passes(void *which) {
    lock((int)(long)which);
    unlock((int)(long)which);
    announce(&sleeper);
    sem_down(&unloaded);
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(50);
    CHECK(argc == 2, "usage: unload PLUGIN");
    signal(SIGUSR1, nothing);
    SYS(sem_init(&unloaded, 0, 0));
    for (long round = 0; round < ROUNDS; round++) {
        STAGE("load");
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(plugin != NULL, "%s", dlerror());
        *(void **)&lock = dlsym(plugin, "plugin_lock");
        *(void **)&unlock = dlsym(plugin, "plugin_unlock");
        CHECK(lock != NULL && unlock != NULL, "%s", dlerror());
        // Somebody sleeps for the first one. From then on that one is not released by a plain store, the
        // other is.
        waiter = sleeper = 0;
        lock(0);
        pthread_t thread = spawn(waits, (void *)0L);
        await_asleep(&waiter);
        unlock(0);
        join(thread);
        for (int which = 0; which < 2; which++) {
            lock(which);
            unlock(which);
        }
        thread = spawn(passes, (void *)(round % 2));
        await_asleep(&sleeper);
        STAGE("unload");
        lock((int)(round / 2 % 2));
        unlock((int)(round / 2 % 2));
        CHECK(dlclose(plugin) == 0, "%s", dlerror());
        raise(SIGUSR1);
        CHECK(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL, "the plugin stays, so that nothing is tested");
        SYS(sem_post(&unloaded));
        join(thread);
    }
    return 0;
}
