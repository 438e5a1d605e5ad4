// A process-shared spinlock between a process that may run on Poundlock and one that certainly does not: this
// program, started once more without the preloaded library. Each makes the lock in turn, both use it, one
// holds it while the other waits, and one that waits is killed.
#include "check.h"

enum { ROUNDS = 2000 };

struct area {
    pthread_spinlock_t lock;
    volatile int made_by_child, child_ready, go, child_tried, child_holds, parent_holds, have_tried;
    volatile long first, second;
};

static struct area *area;

static void wait_for(volatile int *flag) {
    while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) usleep(100);
}
static void set(volatile int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

static void adds(void) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 5 == 0)
            for (int result; (result = pthread_spin_trylock(&area->lock)) != 0;) {
                CHECK(result == EBUSY, "trylock: %d", result);
                sched_yield();
            }
        else
            OK(pthread_spin_lock(&area->lock));
        ALONE(area->first, area->second, for (volatile int spin = 0; spin < i % 16; spin++) continue);
        OK(pthread_spin_unlock(&area->lock));
    }
}

static void map(int fd) {
    area = (struct area *)mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(area != MAP_FAILED, "mmap: %s", strerror(errno));
}

static int child(int fd) {
    limit_seconds(40);
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "pthread_spin_lock");
    // Before glibc 2.34 threads are a library of their own.
    CHECK(symbol != NULL && dladdr(symbol, &info) &&
              (strstr(info.dli_fname, "libc.so") != NULL || strstr(info.dli_fname, "libpthread.so") != NULL),
          "the child's pthread_spin_lock is not glibc's");
    map(fd);
    STAGE("child: set up");
    if (area->made_by_child) OK(pthread_spin_init(&area->lock, PTHREAD_PROCESS_SHARED));
    set(&area->child_ready);
    wait_for(&area->go);
    STAGE("child: adds");
    adds();
    STAGE("child: holds");
    wait_for(&area->parent_holds);
    CALL(pthread_spin_trylock(&area->lock), EBUSY);
    set(&area->child_tried);
    // Waits, in glibc's code, for the parent's release.
    OK(pthread_spin_lock(&area->lock));
    set(&area->child_holds);
    // The parent sees it held, and waits for it.
    while (__atomic_load_n(&area->go, __ATOMIC_ACQUIRE) != 2) usleep(100);
    OK(pthread_spin_unlock(&area->lock));
    return 0;
}

static void with_a_stranger(const char *self, int fd, int made_by_child) {
    STAGE("parent: set up");
    memset((void *)area, 0, sizeof *area);
    area->made_by_child = made_by_child;
    if (!made_by_child) OK(pthread_spin_init(&area->lock, PTHREAD_PROCESS_SHARED));
    pid_t pid = fork();
    SYS(pid);
    if (pid == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", fd);
        unsetenv("LD_PRELOAD");
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(self, self, number, (char *)NULL);
        _exit(97);
    }
    wait_for(&area->child_ready);
    set(&area->go);
    STAGE("parent: adds");
    adds();
    while (__atomic_load_n(&area->second, __ATOMIC_ACQUIRE) < 2L * ROUNDS) usleep(100);
    STAGE("parent: holds");
    OK(pthread_spin_lock(&area->lock));
    set(&area->parent_holds);
    wait_for(&area->child_tried);
    CHECK(!area->child_holds, "two hold it");
    OK(pthread_spin_unlock(&area->lock));
    STAGE("parent: waits");
    wait_for(&area->child_holds);
    CALL(pthread_spin_trylock(&area->lock), EBUSY);
    __atomic_store_n(&area->go, 2, __ATOMIC_RELEASE);
    IN_AND_OUT(pthread_spin_lock(&area->lock), &area->lock);
    await_child(pid);
    CHECK(area->first == 2L * ROUNDS && area->second == area->first, "%ld of %d rounds", area->first,
          2 * ROUNDS);
    OK(pthread_spin_destroy(&area->lock));
}

// Children that were forked run on the same library, or on none.
static void with_children(void) {
    STAGE("forked children");
    memset((void *)area, 0, sizeof *area);
    OK(pthread_spin_init(&area->lock, PTHREAD_PROCESS_SHARED));
    pid_t children[2];
    OK(pthread_spin_lock(&area->lock));
    for (int i = 0; i < 2; i++) {
        children[i] = fork_limited(30);
        if (children[i] == 0) {
            CALL(pthread_spin_trylock(&area->lock), EBUSY);
            __atomic_fetch_add(&area->have_tried, 1, __ATOMIC_RELEASE);
            adds();
            _exit(0);
        }
    }
    // A third waits for it when it is killed: it takes nothing along.
    pid_t victim = fork_limited(30);
    if (victim == 0) {
        set(&area->child_ready);
        pthread_spin_lock(&area->lock);
        _exit(1);
    }
    wait_for(&area->child_ready);
    kill(victim, SIGKILL);
    SYS(waitpid(victim, NULL, 0));
    while (__atomic_load_n(&area->have_tried, __ATOMIC_ACQUIRE) != 2) usleep(100);
    OK(pthread_spin_unlock(&area->lock));
    for (int i = 0; i < 2; i++) await_child(children[i]);
    CHECK(area->first == 2L * ROUNDS, "%ld of %d rounds", area->first, 2 * ROUNDS);
    IN_AND_OUT(pthread_spin_lock(&area->lock), &area->lock);
    OK(pthread_spin_destroy(&area->lock));
}

int main(int argc, char **argv) {
    if (argc > 1) return child(atoi(argv[1]));
    limit_seconds(50);
    int fd = memfd_create("spin_shared", 0);
    SYS(fd);
    SYS(ftruncate(fd, sizeof *area));
    map(fd);
    for (int made_by_child = 0; made_by_child < 2; made_by_child++) {
        CASE(made_by_child ? "made by a stranger" : "made here");
        with_a_stranger("/proc/self/exe", fd, made_by_child);
    }
    CASE("");
    with_children();
    return 0;
}
