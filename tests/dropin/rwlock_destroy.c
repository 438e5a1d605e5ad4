// The first rule of all locks: unlock does not touch the lock once another thread may have destroyed it and
// unmapped the memory. Readers and writers leave, and the last user, who has it as the writer, takes it away
// from under them. An argument says how often.
#include "rwlock.h"
#include <sys/mman.h>

enum { PAGE = 4096, USERS = 3 };

struct object {
    pthread_rwlock_t l;
    int users;
};

static struct object *volatile current;
static pthread_barrier_t handed;
static int rounds = 600;

static struct object *make(int round) {
    struct object *o =
        (struct object *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(o != MAP_FAILED, "mmap: %s", strerror(errno));
    make_rwlock(&o->l, &rwlock_kinds[round % 6]);
    o->users = USERS;
    return o;
}

static void destroy(struct object *o) {
    OK(pthread_rwlock_destroy(&o->l));
    SYS(munmap(o, PAGE));
}

static void leave_as_writer(struct object *o) {
    OK(pthread_rwlock_wrlock(&o->l));
    int last = --o->users == 0;
    OK(pthread_rwlock_unlock(&o->l));
    // Nobody else is inside any more, or on the way in: but maybe on the way out.
    if (last) destroy(o);
}

static void leave_as_reader(struct object *o) {
    OK(pthread_rwlock_rdlock(&o->l));
    int last = __atomic_sub_fetch(&o->users, 1, __ATOMIC_RELAXED) == 0;
    OK(pthread_rwlock_unlock(&o->l));
    if (!last) return;
    // Once the others have released it.
    OK(pthread_rwlock_wrlock(&o->l));
    OK(pthread_rwlock_unlock(&o->l));
    destroy(o);
}

static void *user(void *number) {
    long me = (long)number;
    for (int i = 0; i < rounds; i++) {
        if (me == 0) {
            current = make(i);
            if (i % 3 == 0) OK(pthread_rwlock_wrlock(&current->l));
        }
        pthread_barrier_wait(&handed);
        struct object *o = current;
        pthread_barrier_wait(&handed);
        if (me == 0 && i % 3 == 0) {
            if (i % 2) sched_yield();
            OK(pthread_rwlock_unlock(&o->l));
        }
        for (int turn = 0; turn < (i + (int)me) % 4; turn++) {
            OK(pthread_rwlock_rdlock(&o->l));
            if (i % 5 == 0) sched_yield();
            OK(pthread_rwlock_unlock(&o->l));
        }
        if ((i / 4 + (int)me) % 2) leave_as_writer(o);
        else leave_as_reader(o);
    }
    return NULL;
}

int main(int count, char **arguments) {
    limit_seconds(100);
    if (count > 1) rounds = atoi(arguments[1]);
    pthread_barrier_init(&handed, NULL, USERS);
    crowd(USERS, user);
    return 0;
}
