// destroy_unmap.c's first rule with memory from malloc, for a memory checker: a mutex that another thread
// destroys and frees as soon as unlock has let go of it, and a condition variable freed straight after a
// broadcast and destroy.
#include "check.h"

struct object {
    pthread_mutex_t m;
    pthread_cond_t c;
    int users, told;
};

static struct object *volatile current;
static sem_t handed, taken;
static int rounds;
static const struct mutex_kind *kind;

static struct object *make_object(void) {
    struct object *o = (struct object *)malloc(sizeof *o);
    CHECK(o != NULL, "malloc");
    make_mutex(&o->m, kind);
    OK(pthread_cond_init(&o->c, NULL));
    o->users = 2;
    o->told = 0;
    return o;
}

static void leave(struct object *o) {
    int last = --o->users == 0;
    OK(pthread_mutex_unlock(&o->m));
    if (last) {
        OK(pthread_mutex_destroy(&o->m));
        free(o);
    }
}

static void *receiver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        sem_down(&handed);
        struct object *o = current;
        sem_post(&taken);
        OK(pthread_mutex_lock(&o->m));
        if (i % 4 == 1) {
            struct timespec far = far_away(CLOCK_REALTIME);
            while (!o->told) OK(pthread_cond_timedwait(&o->c, &o->m, &far));
        }
        leave(o);
    }
    return unused;
}

static void *giver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        struct object *o = make_object();
        OK(pthread_mutex_lock(&o->m));
        current = o;
        sem_post(&handed);
        sem_down(&taken);
        sched_yield();
        if (i % 4 == 1) {
            // Out, so that the receiver can begin to wait, and in again.
            OK(pthread_mutex_unlock(&o->m));
            sched_yield();
            OK(pthread_mutex_lock(&o->m));
            o->told = 1;
            OK(pthread_cond_broadcast(&o->c));
            OK(pthread_cond_destroy(&o->c));
        }
        leave(o);
    }
    return unused;
}

int main(int argc, char **argv) {
    limit_seconds(100);
    rounds = argc > 1 ? atoi(argv[1]) : 5000;
    sem_init(&handed, 0, 0);
    sem_init(&taken, 0, 0);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        kind = &mutex_kinds[k];
        if (kind->make != MAKE_STATIC) continue;
        CASE(kind->name);
        pthread_t give = spawn(giver, NULL), take = spawn(receiver, NULL);
        join(give);
        join(take);
    }
    return 0;
}
