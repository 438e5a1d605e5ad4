/*
 * A library that is preloaded to break the kernel's semaphore arrays in one way, named by the variable BROKEN: the books of
 * `poundlock torture --semaphores` must notice each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>

static const char *broken = "";
static _Atomic unsigned long calls;
static int (*real_semop)(int, struct sembuf *, size_t);
static int (*real_semtimedop)(int, struct sembuf *, size_t, const struct timespec *);
static int (*real_semctl)(int, int, int, ...);

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("BROKEN");
    broken = name ? name : "";
    *(void **)&real_semop = dlsym(RTLD_NEXT, "semop");
    *(void **)&real_semtimedop = dlsym(RTLD_NEXT, "semtimedop");
    *(void **)&real_semctl = dlsym(RTLD_NEXT, "semctl");
}

static int is(const char *how) { return strcmp(broken, how) == 0; }
static int every(unsigned long n) { return atomic_fetch_add(&calls, 1) % n == n - 1; }

/* A lock taken, with SEM_UNDO; and given back. */
static int takes(const struct sembuf *op, size_t n) { return n == 1 && op->sem_num < 4 && op->sem_op == -1; }
static int gives(const struct sembuf *op, size_t n) { return n == 1 && op->sem_num < 4 && op->sem_op == 1; }

int semtimedop(int id, struct sembuf *op, size_t n, const struct timespec *t)
{
    if (is("two-in") && takes(op, n) && every(100))
        return 0;
    if (is("gives-twice") && gives(op, n) && every(100))
        real_semop(id, op, n);
    if (is("forgets-to-give") && gives(op, n) && every(100))
        return 0;
    if (is("forgets-to-undo"))
        for (size_t i = 0; i < n; i++)
            op[i].sem_flg &= ~SEM_UNDO;
    if (is("by-halves") && n == 3 && op->sem_flg == IPC_NOWAIT && every(20)) {
        /* Each by itself, up to the first that would have to wait. */
        for (size_t i = 0; i < n; i++) {
            if (real_semop(id, &op[i], 1) != 0)
                return -1;
        }
        return 0;
    }
    if (is("lies-about-a-move") && n == 3 && op->sem_flg == 0 && every(100))
        return 0;
    if (is("never-served") && takes(op, n) && !t && !(op->sem_flg & IPC_NOWAIT) && every(40))
        for (;;)
            pause();
    if (is("timed-early") && t && every(100)) {
        errno = EAGAIN;
        return -1;
    }
    if (is("eintr") && !(op->sem_flg & IPC_NOWAIT) && takes(op, n) && every(100)) {
        errno = EINTR;
        return -1;
    }
    if (is("errno") && every(100)) {
        int rc = real_semop(id, op, n);
        if (rc == 0)
            errno = ENOENT;
        return rc;
    }
    if (is("efbig") && every(300)) {
        errno = EFBIG;
        return -1;
    }
    if (is("crash") && every(300))
        *(volatile int *)16 = 1;
    if (is("ends") && every(300))
        _exit(0);
    int rc = t ? real_semtimedop(id, op, n, t) : real_semop(id, op, n);
    if (rc != 0 && errno == EIDRM && is("removal-unseen"))
        return 0;
    return rc;
}

int semop(int id, struct sembuf *op, size_t n) { return semtimedop(id, op, n, NULL); }

int semctl(int id, int num, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    int rc = real_semctl(id, num, command, argument);
    if (is("torn-values") && command == GETALL && rc == 0 && every(50))
        ((unsigned short *)argument)[6] += 1;
    if (is("wrong-process") && command == GETPID)
        return 1;
    if (is("counts-the-dead") && command == GETNCNT && num == 0 && rc == 0 && every(20))
        return 1;
    return rc;
}
