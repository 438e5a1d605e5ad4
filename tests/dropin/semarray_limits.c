// The system's limits, made small in a namespace of this program's own: as root alone. How many arrays there
// may be, how many semaphores in one and in all, how many operations in a call.
#include "semarray.h"

enum { NOT_PERMITTED = 77, ARRAYS = 8, SEMAPHORES = 10, OPERATIONS = 4, ALL = 50 };

static void restrict_system(void) {
    if (unshare(CLONE_NEWIPC) == -1) {
        dprintf(2, "a namespace of one's own: %s\n", strerror(errno));
        _exit(NOT_PERMITTED);
    }
    int fd = open("/proc/sys/kernel/sem", O_WRONLY | O_CLOEXEC);
    char text[64];
    int length = snprintf(text, sizeof text, "%d %d %d %d\n", SEMAPHORES, ALL, OPERATIONS, ARRAYS);
    if (fd == -1 || write(fd, text, (size_t)length) != length) {
        dprintf(2, "/proc/sys/kernel/sem: %s\n", strerror(errno));
        _exit(NOT_PERMITTED);
    }
    close(fd);
}

int main(void) {
    limit_seconds(30);
    // Before the first call: the library reads the limits once.
    restrict_system();

    STAGE("how many arrays");
    int ids[ARRAYS];
    key_t key = own_key(0);
    for (int i = 0; i < ARRAYS; i++) ids[i] = i % 2 ? new_array(1) : semget(key + i, 1,
                                                                            0600 | IPC_CREAT | IPC_EXCL);
    REFUSED(semget(IPC_PRIVATE, 1, 0600), ENOSPC);
    REFUSED(semget(key + 1, 1, 0600 | IPC_CREAT), ENOSPC);
    // What is there can be found, and what is not is not there.
    GIVES(semget(key, 1, 0600 | IPC_CREAT), ids[0]);
    REFUSED(semget(key + 1, 1, 0600), ENOENT);
    REFUSED(semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    remove_array(ids[3]);
    ids[3] = semget(key + 1, 1, 0600 | IPC_CREAT);
    CHECK(ids[3] != -1, "semget: %s", strerror(errno));
    REFUSED(semget(IPC_PRIVATE, 1, 0600), ENOSPC);
    for (int i = 0; i < ARRAYS; i++) remove_array(ids[i]);

    STAGE("how many semaphores");
    REFUSED(semget(IPC_PRIVATE, SEMAPHORES + 1, 0600), EINVAL);
    REFUSED(semget(key, SEMAPHORES + 1, 0600 | IPC_CREAT), EINVAL);
    for (int i = 0; i < ALL / SEMAPHORES; i++) ids[i] = new_array(SEMAPHORES);
    REFUSED(semget(IPC_PRIVATE, 1, 0600), ENOSPC);
    remove_array(ids[0]);
    REFUSED(semget(IPC_PRIVATE, SEMAPHORES + 1, 0600), EINVAL);
    ids[0] = new_array(SEMAPHORES - 1);
    REFUSED(semget(IPC_PRIVATE, 2, 0600), ENOSPC);
    int one = new_array(1);

    STAGE("how many operations");
    struct sembuf ops[OPERATIONS + 1];
    for (int i = 0; i <= OPERATIONS; i++) ops[i] = op(0, 1, 0);
    OK(semop(one, ops, OPERATIONS));
    REFUSED(semop(one, ops, OPERATIONS + 1), E2BIG);
    GIVES(value(one, 0), OPERATIONS);

    STAGE("IPC_INFO");
    struct seminfo info;
    CHECK(semctl(0, 0, IPC_INFO, &info) >= 0, "IPC_INFO: %s", strerror(errno));
    CHECK(info.semmni == ARRAYS && info.semmsl == SEMAPHORES && info.semopm == OPERATIONS
          && info.semmns == ALL,
          "limits: %d arrays, %d and %d semaphores, %d operations", info.semmni, info.semmsl, info.semmns,
          info.semopm);
    remove_array(one);
    for (int i = 0; i < ALL / SEMAPHORES; i++) remove_array(ids[i]);
    return 0;
}
