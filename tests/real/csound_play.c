/*
 * Plays with csound's library, as the command of that name does, and ends the process once the output is
 * complete: the command goes on to free what its threads may still be using, and crashes now and then where
 * the machine is busy. Arguments: those of the command.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static void *library;

static void *symbol(const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(2);
    }
    return address;
}

int main(int argc, char **argv)
{
    library = dlopen("libcsound64.so.6.0", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    void *(*create)(void *) = (void *(*)(void *))symbol("csoundCreate");
    int (*compile)(void *, int, char **) = (int (*)(void *, int, char **))symbol("csoundCompile");
    int (*perform)(void *) = (int (*)(void *))symbol("csoundPerformKsmps");
    int (*clean_up)(void *) = (int (*)(void *))symbol("csoundCleanup");
    void *csound = create(NULL);
    if (!csound || compile(csound, argc, argv) != 0)
        return 3;
    int played;
    while ((played = perform(csound)) == 0)
        continue;
    if (played < 0)
        return 4;
    /* Writes what is left, and the header. */
    int failed = clean_up(csound);
    _exit(failed ? 5 : 0);
}
