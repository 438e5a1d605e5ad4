// Whose an array is, as the kernel's own list says: that every way to a call leads to the library, and that
// what it has no business with goes to the kernel.
//
//     semarray_whose kernel|ours|all
//
// The first argument says who has arrays that no other user can open, and those that others can.
#include "semarray.h"

// A system call by its instruction: the C library's `syscall` leads to the library as well. -1 if it failed.
static long bare(long call, long first, long second, long third) {
#if defined __x86_64__
    long done = call;
    register long fourth __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "+a"(done)
                     : "D"(first), "S"(second), "d"(third), "r"(fourth)
                     : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = call, done __asm__("x0") = first, other __asm__("x1") = second;
    register long third_ __asm__("x2") = third, fourth __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(done) : "r"(number), "r"(other), "r"(third_), "r"(fourth) : "memory");
#endif
    if (done >= 0 || done < -4095) return done;
    errno = (int)-done;
    return -1;
}

// Whether the kernel lists the array.
static int is_the_kernels(int id) {
    FILE *list = fopen("/proc/sysvipc/sem", "r");
    CHECK(list != NULL, "/proc/sysvipc/sem: %s", strerror(errno));
    char line[400];
    int found = 0;
    while (fgets(line, sizeof line, list)) {
        int key, its;
        found |= sscanf(line, "%d %d", &key, &its) == 2 && its == id;
    }
    fclose(list);
    return found;
}

static void look(const char *what, int id, int kernels) {
    CHECK(id != -1, "%s: %s", what, strerror(errno));
    CHECK(is_the_kernels(id) == kernels, "%s: array %d is %s", what, id,
          kernels ? "not the kernel's" : "the kernel's");
    OK(change(id, 0, 1, SEM_UNDO));
    GIVES(value(id, 0), 1);
    // By the system call, what is the kernel's can be seen, and nothing else.
    long by_call = bare(SYS_semctl, id, 0, GETVAL);
    CHECK(kernels ? by_call == 1 : by_call == -1 && errno == EINVAL, "%s: the kernel's value is %ld", what,
          by_call);
    remove_array(id);
    REFUSED(change(id, 0, 1, SEM_UNDO), EINVAL);
}

int main(int argc, char **argv) {
    limit_seconds(30);
    CHECK(argc == 2, "usage: semarray_whose kernel|ours|all");
    int closed = strcmp(argv[1], "kernel") == 0, open = strcmp(argv[1], "all") != 0;
    key_t key = own_key(0);

    STAGE("what no other user can open");
    look("IPC_PRIVATE", semget(IPC_PRIVATE, 1, 0600), closed);
    look("0600", semget(key, 1, 0600 | IPC_CREAT), closed);
    look("0700", semget(key, 1, 0700 | IPC_CREAT | IPC_EXCL), closed);

    look("IPC_PRIVATE, by syscall", (int)syscall(SYS_semget, IPC_PRIVATE, 1, 0600), closed);
    look("0600, by syscall", (int)syscall(SYS_semget, key, 1, 0600 | IPC_CREAT), closed);

    STAGE("what others can open");
    look("0660", semget(key, 1, 0660 | IPC_CREAT), open);
    look("0666", semget(key, 1, 0666 | IPC_CREAT), open);
    look("0604", semget(key, 1, 0604 | IPC_CREAT), open);
    // Nobody finds one without a key; whoever is told its id has to be let in by its mode.
    look("IPC_PRIVATE, 0666", semget(IPC_PRIVATE, 1, 0666), closed);

    STAGE("through the dynamic linker");
    int (*get)(key_t, int, int) = (int (*)(key_t, int, int))dlsym(RTLD_DEFAULT, "semget");
    look("dlsym", get(IPC_PRIVATE, 1, 0600), closed);
    get = (int (*)(key_t, int, int))dlsym(dlopen("libc.so.6", RTLD_NOW), "semget");
    // From the C library itself: what is asked for by that name is the C library's.
    look("dlsym in the C library", get(IPC_PRIVATE, 1, 0600), 1);
    get = (int (*)(key_t, int, int))dlvsym(RTLD_DEFAULT, "semget", "GLIBC_2.2.5");
    if (get != NULL) look("dlvsym", get(IPC_PRIVATE, 1, 0600), closed);

    STAGE("an array of the kernel's, under whatever key");
    int id = (int)bare(SYS_semget, key, 2, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(id);
    GIVES(semget(key, 1, 0600), id);
    GIVES(semget(key, 1, 0600 | IPC_CREAT), id);
    REFUSED(semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL), EEXIST);
    OK(change(id, 1, 3, 0));
    GIVES((int)bare(SYS_semctl, id, 1, GETVAL), 3);
    GIVES((int)syscall(SYS_semctl, id, 1, GETVAL), 3);
    struct timespec t = ms(1);
    struct sembuf down = op(0, -1, 0);
    REFUSED(semtimedop(id, &down, 1, &t), EAGAIN);
    struct semid_ds about;
    OK(semctl(id, 0, IPC_STAT, &about));
    CHECK(about.sem_nsems == 2 && about.sem_perm.__key == key, "IPC_STAT says another array");
    OK(semctl(id, 1, SETVAL, 9));
    unsigned short all[2];
    OK(semctl(id, 0, GETALL, all));
    CHECK(all[0] == 0 && all[1] == 9, "GETALL says %d %d", all[0], all[1]);
    remove_array(id);
    REFUSED(semget(key, 1, 0600), ENOENT);
    return 0;
}
