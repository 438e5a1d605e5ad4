// Planted bugs: semaphore calls that forget what is to be undone (-DFORGET), or that do the operations of one
// call one after the other (-DSPLIT), on the kernel's semaphores.
#include <sys/sem.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int operate(int id, struct sembuf *ops, size_t count, const struct timespec *limit) {
    return (int)syscall(SYS_semtimedop, id, ops, count, limit);
}

int semtimedop(int id, struct sembuf *ops, size_t count, const struct timespec *limit) {
#ifdef FORGET
    struct sembuf without[500];
    if (count >= 1 && count <= 500) {
        for (size_t i = 0; i < count; i++) {
            without[i] = ops[i];
            without[i].sem_flg &= (short)~SEM_UNDO;
        }
        return operate(id, without, count, limit);
    }
#endif
#ifdef SPLIT
    if (count >= 2 && count <= 4) {
        for (size_t i = 0; i < count; i++)
            if (operate(id, ops + i, 1, limit) == -1) return -1;
        return 0;
    }
#endif
    return operate(id, ops, count, limit);
}

int semop(int id, struct sembuf *ops, size_t count) { return semtimedop(id, ops, count, NULL); }
