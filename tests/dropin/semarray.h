// What the programs about System V semaphores share, beside check.h.
//
// They run on the kernel's semaphores first, as the control, and then on the library's. Arrays are
// IPC_PRIVATE or have a key of this process's own, are open to their owner alone unless a program says
// otherwise, and are removed at the end.
#ifndef DROPIN_SEM_H
#define DROPIN_SEM_H

#include "check.h"
#include <sys/ipc.h>
#include <sys/sem.h>

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

// The kernel's defaults, which are the library's.
enum { MOST_SEMAPHORES = 32000, MOST_OPERATIONS = 500, MOST_VALUE = 32767 };

// `call` returns -1 and sets errno to `want`.
#define REFUSED(call, want)                                                                                  \
    do {                                                                                                     \
        errno = ERRNO_SENTINEL;                                                                              \
        int got_ = (call);                                                                                   \
        int errno_ = errno;                                                                                  \
        if (got_ != -1) FAIL("%s: got %d, expected it to fail with %s", #call, got_, strerror(want));        \
        if (errno_ != (want))                                                                                \
            FAIL("%s: failed with %d (%s), expected %d (%s)", #call, errno_, strerror(errno_), want, strerror(want));  \
    } while (0)

// `call` returns the number `want` and leaves errno alone.
#define GIVES(call, want)                                                                                    \
    do {                                                                                                     \
        errno = ERRNO_SENTINEL;                                                                              \
        int got_ = (call);                                                                                   \
        int errno_ = errno;                                                                                  \
        int want_ = (want);                                                                                  \
        if (got_ != want_) FAIL("%s: got %d (errno %d), expected %d", #call, got_, errno_, want_);           \
        if (errno_ != ERRNO_SENTINEL) FAIL("%s: changed errno to %d (%s)", #call, errno_, strerror(errno_)); \
    } while (0)

// The last private arrays of this process. A failure removes them; removing one twice does no harm.
static struct {
    pid_t maker;
    int count, ids[64];
} own_arrays UNUSED;

UNUSED static void remove_own_arrays(void) {
    if (own_arrays.maker != getpid()) return;
    for (int i = 0; i < own_arrays.count && i < 64; i++) semctl(own_arrays.ids[i], 0, IPC_RMID);
}

UNUSED static int new_array(int semaphores) {
    int id = semget(IPC_PRIVATE, semaphores, 0600);
    if (id == -1) FAIL("semget of %d semaphores: %s", semaphores, strerror(errno));
    if (own_arrays.maker != getpid()) own_arrays.count = 0;
    own_arrays.maker = getpid();
    own_arrays.ids[own_arrays.count++ % 64] = id;
    at_failure = remove_own_arrays;
    return id;
}

// A key that no other process uses: there are 2^16 process ids at a time, and each may have 2^8 keys.
UNUSED static key_t own_key(unsigned which) {
    return (key_t)(0x50000000u | ((unsigned)getpid() & 0xfffff) << 8 | which);
}

UNUSED static struct sembuf op(int num, int change, int flags) {
    return (struct sembuf){(unsigned short)num, (short)change, (short)flags};
}

UNUSED static int change(int id, int num, int by, int flags) {
    struct sembuf one = op(num, by, flags);
    return semop(id, &one, 1);
}

UNUSED static int value(int id, int num) { return semctl(id, num, GETVAL); }

UNUSED static void set(int id, int num, int to) { OK(semctl(id, num, SETVAL, to)); }

UNUSED static void remove_array(int id) { OK(semctl(id, 0, IPC_RMID)); }

// Waits until this many sleep for the semaphore to grow, and for it to be zero. Both counts are exact once
// the sleeper is in the array's queue.
UNUSED static void await_sleepers(int id, int num, int growth, int zero) {
    for (;;) {
        int n = semctl(id, num, GETNCNT), z = semctl(id, num, GETZCNT);
        CHECK(n != -1 && z != -1, "GETNCNT or GETZCNT: %s", strerror(errno));
        if (n == growth && z == zero) return;
        usleep(200);
    }
}

UNUSED static void await_process_asleep(pid_t process) { await_task_asleep(process, process); }

UNUSED static void kill_child(pid_t child, int signal_number) {
    SYS(kill(child, signal_number));
    await_child_killed(child, signal_number);
}

UNUSED static struct timespec ms(long milliseconds) {
    return (struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000};
}

#endif
