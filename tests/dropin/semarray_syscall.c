// Semaphore calls through the C library's `syscall`, on arrays that may come from its functions; and that
// every other system call is what it is without the library in the way, also before that has started.
#include "semarray.h"

static int raw_get(key_t key, int semaphores, int flags) {
    return (int)syscall(SYS_semget, key, semaphores, flags);
}
static int raw_op(int id, struct sembuf *ops, size_t count) {
    return (int)syscall(SYS_semop, id, ops, count);
}
static int raw_timedop(int id, struct sembuf *ops, size_t count, struct timespec *limit) {
    return (int)syscall(SYS_semtimedop, id, ops, count, limit);
}
static int raw_ctl(int id, int num, int command, void *argument) {
    return (int)syscall(SYS_semctl, id, num, command, argument);
}

// What the calls before everything else gave: the library starts after this.
static struct {
    long pid, failed;
    int error;
    void *memory;
} early;

static void before_all(void) {
    early.pid = syscall(SYS_getpid);
    errno = ERRNO_SENTINEL;
    early.failed = syscall(SYS_close, -1);
    early.error = errno;
    long access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    early.memory = (void *)syscall(SYS_mmap, NULL, 4096L, access, kind, -1L, 0L);
}

__attribute__((section(".preinit_array"), used)) static void (*run_before_all)(void) = before_all;

static void other_calls(void) {
    STAGE("before the library has started");
    CHECK(early.pid == getpid(), "getpid gave %ld", early.pid);
    CHECK(early.failed == -1 && early.error == EBADF, "close gave %ld, errno %d", early.failed, early.error);
    CHECK(early.memory != MAP_FAILED && early.memory != NULL, "mmap failed");
    *(volatile char *)early.memory = 1;

    STAGE("other system calls");
    GIVES((int)syscall(SYS_getpid), getpid());
    REFUSED((int)syscall(SYS_close, -1), EBADF);
    REFUSED((int)syscall(-1L), ENOSYS);
    REFUSED((int)syscall(1L << 20), ENOSYS);
    // Six arguments, the last of which is on the stack.
    int file = open("/proc/self/exe", O_RDONLY);
    SYS(file);
    char *direct = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, file, 4096);
    char *indirect = (char *)syscall(SYS_mmap, NULL, 8192L, PROT_READ, MAP_PRIVATE, (long)file, 4096L);
    CHECK(direct != MAP_FAILED && indirect != MAP_FAILED, "mmap: %s", strerror(errno));
    CHECK(memcmp(direct, indirect, 8192) == 0, "an argument was lost on the way");
    close(file);
}

static void *give(void *id) {
    struct sembuf up = op(0, 1, 0);
    await_sleepers(*(int *)id, 0, 1, 0);
    OK(raw_op(*(int *)id, &up, 1));
    return NULL;
}

static void calls(int id) {
    struct sembuf up = op(0, 2, 0), down = op(0, -3, 0), ops[2] = {op(0, -1, 0), op(1, 4, 0)};
    struct timespec t = ms(1);
    struct semid_ds about;
    unsigned short all[2];
    OK(raw_op(id, &up, 1));
    GIVES(value(id, 0), 2);
    OK(raw_op(id, ops, 2));
    GIVES(raw_ctl(id, 0, GETVAL, NULL), 1);
    GIVES(raw_ctl(id, 1, GETVAL, NULL), 4);
    REFUSED(raw_timedop(id, &down, 1, &t), EAGAIN);
    pthread_t giver = spawn(give, &id);
    down.sem_op = -2;
    OK(raw_op(id, &down, 1));
    join(giver);
    OK(raw_ctl(id, 0, SETVAL, (void *)(long)7));
    OK(raw_ctl(id, 0, GETALL, all));
    CHECK(all[0] == 7 && all[1] == 4, "GETALL gave %d %d", all[0], all[1]);
    OK(raw_ctl(id, 0, IPC_STAT, &about));
    CHECK(about.sem_nsems == 2, "IPC_STAT says %d semaphores", (int)about.sem_nsems);
    GIVES(raw_ctl(id, 0, SEM_STAT_ANY, &about), id);
    OK(raw_timedop(id, &up, 1, NULL));
    GIVES(value(id, 0), 9);
    // What the kernel does not look at.
    GIVES((int)syscall(SYS_semctl, (long)id | 1L << 40, 0L, (long)GETVAL), 9);

    REFUSED(raw_op(id, &up, 0), EINVAL);
    REFUSED(raw_op(id, NULL, 1), EFAULT);
    REFUSED(raw_op(id, &up, MOST_OPERATIONS + 1), E2BIG);
    REFUSED(raw_ctl(id, 2, GETVAL, NULL), EINVAL);
    REFUSED(raw_ctl(id, 0, 77, NULL), EINVAL);
    up.sem_num = 2;
    REFUSED(raw_op(id, &up, 1), EFBIG);
    OK(raw_ctl(id, 0, IPC_RMID, NULL));
    REFUSED(raw_ctl(id, 0, IPC_RMID, NULL), EINVAL);
    REFUSED(raw_op(id, &up, 1), EINVAL);
    REFUSED(value(id, 0), EINVAL);
}

int main(void) {
    limit_seconds(60);
    other_calls();
    STAGE("arrays made by either");
    calls(new_array(2));
    int id = raw_get(IPC_PRIVATE, 2, 0600);
    SYS(id);
    calls(id);

    STAGE("arrays found by either");
    key_t key = own_key(7);
    REFUSED(raw_get(key, 2, 0600), ENOENT);
    id = raw_get(key, 2, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(id);
    GIVES(semget(key, 2, 0600), id);
    GIVES(raw_get(key, 2, 0600 | IPC_CREAT), id);
    REFUSED(semget(key, 2, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    REFUSED(raw_get(key, 2, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    REFUSED(raw_get(key, 3, 0600), EINVAL);
    calls(id);
    id = semget(key, 2, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(id);
    GIVES(raw_get(key, 0, 0), id);
    calls(id);
    REFUSED(raw_get(key, 2, 0600), ENOENT);

    STAGE("indices");
    struct seminfo one, other;
    memset(&one, 0, sizeof one);
    memset(&other, 0, sizeof other);
    id = new_array(1);
    int highest = semctl(0, 0, SEM_INFO, &one);
    SYS(highest);
    GIVES(raw_ctl(0, 0, SEM_INFO, &other), highest);
    CHECK(one.semusz >= 1 && other.semusz >= 1, "SEM_INFO counts %d and %d arrays", one.semusz, other.semusz);
    remove_array(id);
    return 0;
}
