// Readers-writer locks that processes share are glibc's, whoever runs this one: also those that another
// process made.
#include "rwlock.h"

enum { CHILDREN = 3, ROUNDS = 2000 };

struct area {
    pthread_rwlock_t lock;
    volatile long first, second;
};
static struct area *area;

static void in_child(unsigned number) {
    unsigned random = 2654435761u * (number + 1);
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        if (random >> 30) {
            if (random >> 8 & 1) OK(pthread_rwlock_rdlock(&area->lock));
            else
                while (pthread_rwlock_tryrdlock(&area->lock) != 0) sched_yield();
            long v = area->first;
            if (i % 64 == 0) sched_yield();
            CHECK(v == area->second && v == area->first, "a writer inside with a reader");
        } else {
            struct timespec far = far_away(CLOCK_REALTIME);
            if (random >> 8 & 1) OK(pthread_rwlock_wrlock(&area->lock));
            else OK(pthread_rwlock_timedwrlock(&area->lock, &far));
            CHECK(is_glibcs(&area->lock), "it is not on glibc's code");
            long v = area->first;
            CHECK(v == area->second, "two writers inside");
            area->first = v + 1;
            if (i % 64 == 0) sched_yield();
            area->second = v + 1;
        }
        OK(pthread_rwlock_unlock(&area->lock));
    }
}

int main(void) {
    limit_seconds(60);
    area = (struct area *)mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED, "mmap: %s", strerror(errno));
    for (int k = 0; k < RWLOCK_KINDS; k++) {
        if (!rwlock_kinds[k].shared) continue;
        CASE(rwlock_kinds[k].name);
        make_rwlock(&area->lock, &rwlock_kinds[k]);
        // What any process writes there that makes such a lock.
        pthread_rwlock_t made = PTHREAD_RWLOCK_INITIALIZER;
        made.__data.__shared = area->lock.__data.__shared;
        made.__data.__flags = (unsigned)rwlock_kinds[k].kind;
        CHECK(made.__data.__shared != 0 && memcmp(&made, &area->lock, sizeof made) == 0,
              "it is not glibc's image");
        STAGE("exclusion between processes");
        pid_t children[CHILDREN];
        for (unsigned i = 0; i < CHILDREN; i++) {
            children[i] = fork_limited(50);
            if (children[i] == 0) {
                in_child(i);
                _exit(0);
            }
        }
        in_child(CHILDREN);
        for (int i = 0; i < CHILDREN; i++) await_child(children[i]);
        CHECK(area->first == area->second, "a writer is still inside");
        OK(pthread_rwlock_destroy(&area->lock));
    }
    return 0;
}
