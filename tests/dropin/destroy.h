// Locks that protect the life of their own memory: whoever finds that it is the last one unlocks, destroys,
// and gives the memory back, while the others may still be on their way out of unlock. POSIX promises that
// this works.
//
// The program says in front of this header what an object is, which has `users`, and these four.
#ifndef DROPIN_DESTROY_H
#define DROPIN_DESTROY_H

static struct object *make(void);
static void enter(struct object *o, long turn);
static void leave(struct object *o, long turn);
static void dispose(struct object *o);

enum { MOST = 4 };
static pthread_barrier_t barrier;
static struct object *volatile current;
static int threads, rounds;
static sem_t handed, taken;

static void *user(void *number) {
    long me = (long)number;
    for (int i = 0; i < rounds; i++) {
        if (me == 0) {
            struct object *o = make();
            o->users = threads;
            current = o;
        }
        pthread_barrier_wait(&barrier);
        struct object *o = current;
        // Everybody has seen it before the first can be gone.
        pthread_barrier_wait(&barrier);
        enter(o, i + me);
        int last = --o->users == 0;
        leave(o, i);
        if (last) dispose(o);
    }
    return NULL;
}

// One thread waits for the lock that the other holds, gets it, and gives it back while the other is still on
// its way out of unlock.
static void *receiver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        sem_down(&handed);
        struct object *o = current;
        sem_post(&taken);
        enter(o, 0);
        leave(o, 1);
        dispose(o);
    }
    return unused;
}

static void *giver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        struct object *o = make();
        enter(o, 0);
        current = o;
        sem_post(&handed);
        sem_down(&taken);
        // The receiver finds it held, finds it free, spins, or sleeps.
        for (volatile int spin = 0; spin < i * 37 % 4000; spin++) continue;
        if (i % 64 == 0) usleep(200);
        leave(o, 1);
    }
    return unused;
}

static void destroyed_by_the_last(int most_rounds) {
    STAGE("the last of several destroys");
    for (threads = 2; threads <= MOST; threads++) {
        rounds = most_rounds / (threads - 1);
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        crowd(threads, user);
        pthread_barrier_destroy(&barrier);
    }
    STAGE("handed over and gone");
    rounds = most_rounds;
    sem_init(&handed, 0, 0);
    sem_init(&taken, 0, 0);
    pthread_t give = spawn(giver, NULL), take = spawn(receiver, NULL);
    join(give);
    join(take);
}

#endif
