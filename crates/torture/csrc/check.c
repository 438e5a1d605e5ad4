/* The checker: mutual exclusion, what each thread is doing, and the one line that says what went wrong. */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world world;
_Thread_local struct slot *self;
_Thread_local uint64_t *dice;
struct note *child_note;

_Atomic int violated;

uint64_t mix(uint64_t x) {
    /* splitmix64's finaliser */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void become(struct slot *slot) {
    self = slot;
    dice = &slot->random;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* The parent process ends this one: until then a debugger finds every thread where it was. */
_Noreturn void halt(void) {
    for (;;) pause();
}

static void put(const char *text, size_t length) {
    while (length > 0) {
        ssize_t n = write(STDOUT_FILENO, text, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            halt_if_violated(); /* the watchdog has heard enough */
            _exit(4);           /* it is gone */
        }
        text += n;
        length -= (size_t)n;
    }
}

/* A line to the watchdog in the parent process, in one write. */
void say(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0) return;
    size_t length = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[length++] = '\n';
    put(line, length);
}

const char *error_name(int error) {
    static _Thread_local char numbers[2][16];
    static _Thread_local unsigned last;
    static const struct {
        int error;
        const char *name;
    } names[] = {
        {0, "0"},
#define NAME(error) {error, #error}
        NAME(EAGAIN), NAME(EBUSY),     NAME(EDEADLK), NAME(EFAULT),     NAME(EINTR),
        NAME(EINVAL), NAME(ENOMEM),    NAME(ENOSYS),  NAME(EOWNERDEAD), NAME(EPERM),
        NAME(ESRCH),  NAME(ETIMEDOUT), NAME(EACCES),  NAME(EEXIST),     NAME(EFBIG),
        NAME(EIDRM),  NAME(ENOENT),    NAME(ENOSPC),  NAME(ERANGE),     NAME(E2BIG),
#undef NAME
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error) return names[i].name;
    char *into = numbers[last++ % 2];
    snprintf(into, sizeof *numbers, "error %d", error);
    return into;
}

void expect(const char *call, const char *name, int rc, int expected) {
    if (rc != expected && expected == 0) violation("%s of %s returned %s", call, name, error_name(rc));
    VIOLATION_IF(rc != expected, "%s of %s returned %s instead of %s", call, name, error_name(rc),
                 error_name(expected));
}

static const char *const what_text[WHATS] = {
    [STARTING] = "starting",
    [THINKING] = "outside",
    [LOCKING] = "in lock",
    [TRYING] = "in trylock",
    [TIMED_LOCKING] = "in timedlock or clocklock",
    [HOLDING] = "holding",
    [UNLOCKING] = "in unlock",
    [WAITING] = "in a condition wait",
    [TIMED_WAITING] = "in a timed condition wait",
    [CANCELLABLE_WAITING] = "in a cancellable condition wait",
    [SIGNALLING] = "in signal",
    [BROADCASTING] = "in broadcast",
    [DESTROYING] = "in destroy",
    [FORKING] = "in fork",
    [AWAITING_CHILD] = "waiting for its forked child",
    [JOINING] = "joining",
    [CREATING] = "creating a thread",
    [CHECKING_RESULTS] = "checking results on private objects",
    [WATCHING] = "waiting for another to come to its wait",
    [EXITING] = "exiting",
};

static void hex(char *into, size_t room, const void *object, size_t size) {
    const unsigned char *bytes = object;
    size_t at = 0;
    for (size_t i = 0; i < size && at + 4 < room; i++)
        at += (size_t)snprintf(into + at, room - at, "%s%02x", i && i % 4 == 0 ? " " : "", bytes[i]);
}

/* "in lock of recursive for 12.3 s, bytes 00000000 ...": without the bytes where the object may be gone. */
void describe(char *into, size_t room, const struct slot *slot) {
    const char *name = atomic_load(&slot->name);
    unsigned what = atomic_load(&slot->what);
    uint64_t ticks = atomic_load(&world.tick) - atomic_load(&slot->since);
    int n = snprintf(into, room, "%s%s%s for %.1f s", what < WHATS ? what_text[what] : "?",
                     name ? " of " : "", name ? name : "", (double)ticks * TICK_MS / 1000.0);
    const void *object = atomic_load(&slot->object);
    if (object && n > 0 && (size_t)n + 16 < room) {
        n += snprintf(into + n, room - (size_t)n, ", bytes ");
        hex(into + n, room - (size_t)n, object, atomic_load(&slot->object_size));
    }
}

void dump_threads(void) {
    for (unsigned i = 0; i < world.slots; i++) {
        const struct slot *slot = &world.slot[i];
        if (atomic_load(&slot->phase) == EMPTY) continue;
        char text[512];
        describe(text, sizeof text, slot);
        say("thread %u (tid %d): %s", i, atomic_load(&slot->tid), text);
    }
}

_Noreturn void violation(const char *format, ...) {
    char text[900] = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (child_note) {
        memcpy(child_note->text, text, sizeof child_note->text - 1);
        _exit(3);
    }
    if (atomic_exchange(&violated, 1) == 0) {
        say("violation %s", text);
        dump_threads();
        say("end");
    }
    halt();
}

struct cell *new_cell(void) {
    struct cell *cell = aligned_alloc(64, (sizeof *cell + 63) / 64 * 64);
    VIOLATION_IF(!cell, "torture itself: out of memory");
    for (unsigned i = 0; i < GUARD_WORDS; i++) cell->before[i] = cell->after[i] = GUARD;
    memset(cell->object, 0, sizeof cell->object);
    return cell;
}

void check_guards(const struct cell *cell, const char *name) {
    for (unsigned i = 0; i < GUARD_WORDS; i++)
        VIOLATION_IF(cell->before[i] != GUARD || cell->after[i] != GUARD,
                     "memory beside the object of %s was written", name);
}

struct lock *new_lock(const char *kind, const char *name) {
    struct lock *lock = &world.lock[world.lock_count];
    lock->index = world.lock_count++;
    lock->kind = kind_named(kind);
    lock->name = name;
    lock->cell = new_cell();
    /* What lies behind the object belongs to the guard too. */
    memset(lock->cell->object + lock->kind->size, 0x5a, OBJECT_BYTES - lock->kind->size);
    expect_zero("init", name, lock->kind->init(lock->kind, lock->cell->object));
    return lock;
}

void enter(struct lock *lock) {
    uint32_t me = self->number + 1;
    uint32_t owner = lock->owner;
    uint64_t first = lock->first, second = lock->second;
    VIOLATION_IF(owner != 0, "mutual exclusion: thread %u acquired %s while thread %u holds it", me - 1,
                 lock->name, owner - 1);
    VIOLATION_IF(
        first != second,
        "mutual exclusion: thread %u acquired %s in the middle of another critical section (%lu of %lu)",
        me - 1, lock->name, (unsigned long)second, (unsigned long)first);
    unsigned sharers = atomic_load_explicit(&lock->sharers, memory_order_relaxed);
    VIOLATION_IF(sharers != 0, "exclusion: thread %u acquired %s while %u share it", me - 1, lock->name,
                 sharers);
    lock->owner = me;
    lock->first = first + 1;
    lock->entries = lock->entries + 1;
}

void must_hold(const struct lock *lock, const char *when) {
    uint32_t owner = lock->owner;
    VIOLATION_IF(owner != self->number + 1,
                 "mutual exclusion: %s, thread %u holds %s, but it belongs to thread %d", when, self->number,
                 lock->name, (int)owner - 1);
    VIOLATION_IF(lock->first != lock->second + 1,
                 "mutual exclusion: %s, thread %u holds %s, but another critical section ran (%lu, %lu)",
                 when, self->number, lock->name, (unsigned long)lock->first, (unsigned long)lock->second);
}

void leave(struct lock *lock) {
    must_hold(lock, "on leaving");
    lock->second = lock->second + 1;
    lock->owner = 0;
}
