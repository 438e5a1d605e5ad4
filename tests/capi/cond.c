// poundlock_cond_t: hand-over, broadcasts, deadlines, and no cancellation.
#include "check.h"

enum { TURNS = 5000, CROWD = 6 };

static poundlock_mutex_t mutex = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_cond_t cond = POUNDLOCK_COND_INITIALIZER;
static int turn, inside, served;
static volatile pid_t waiter;

static void *play(void *argument) {
    int own = *(int *)argument;
    OK(poundlock_mutex_lock(&mutex));
    for (int i = 0; i < TURNS; i++) {
        while (turn % 2 != own) OK(poundlock_cond_wait(&cond, &mutex));
        turn++;
        OK(poundlock_cond_signal(&cond));
    }
    OK(poundlock_mutex_unlock(&mutex));
    return NULL;
}

static void turns(void) {
    STAGE("two threads take turns");
    static int own[2] = {0, 1};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = spawn(play, &own[i]);
    for (int i = 0; i < 2; i++) join(threads[i]);
    CHECK(turn == 2 * TURNS, "%d", turn);
}

static void *stand(void *unused) {
    struct timespec far = far_away(CLOCK_REALTIME);
    OK(poundlock_mutex_lock(&mutex));
    int number = inside++;
    while (!served) {
        if (number % 2 == 0) {
            OK(poundlock_cond_wait(&cond, &mutex));
        } else {
            OK(poundlock_cond_clockwait(&cond, &mutex, CLOCK_REALTIME, &far));
        }
    }
    inside--;
    OK(poundlock_mutex_unlock(&mutex));
    return unused;
}

static void many(void) {
    STAGE("a broadcast reaches all");
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++) threads[i] = spawn(stand, NULL);
    for (int all = 0; !all; usleep(200)) {
        OK(poundlock_mutex_lock(&mutex));
        all = inside == CROWD;
        OK(poundlock_mutex_unlock(&mutex));
    }
    OK(poundlock_mutex_lock(&mutex));
    served = 1;
    OK(poundlock_cond_broadcast(&cond));
    OK(poundlock_mutex_unlock(&mutex));
    for (int i = 0; i < CROWD; i++) join(threads[i]);
    CHECK(inside == 0, "%d", inside);
}

static void *try_busy(void *unused) {
    CALL(poundlock_mutex_trylock(&mutex), EBUSY);
    return unused;
}

static void deadlines(void) {
    STAGE("deadlines");
    OK(poundlock_mutex_lock(&mutex));
    GIVES_UP(poundlock_cond_clockwait, &cond, &mutex);
    // The mutex is held again after each.
    join(spawn(try_busy, NULL));
    OK(poundlock_mutex_unlock(&mutex));
    OK(poundlock_cond_destroy(&cond));
    memset(&cond, 0xa5, sizeof cond);
    OK(poundlock_cond_init(&cond));
}

static void *wait_on(void *unused) {
    OK(poundlock_mutex_lock(&mutex));
    announce(&waiter);
    while (!get(&turn)) OK(poundlock_cond_wait(&cond, &mutex));
    OK(poundlock_mutex_unlock(&mutex));
    pthread_testcancel();
    return unused;
}

static void no_cancellation(void) {
    STAGE("a wait is no cancellation point");
    set(&turn, 0);
    pthread_t thread = spawn(wait_on, NULL);
    await_asleep(&waiter);
    MUST(pthread_cancel(thread));
    OK(poundlock_mutex_lock(&mutex));
    set(&turn, 1);
    OK(poundlock_cond_signal(&cond));
    OK(poundlock_mutex_unlock(&mutex));
    CHECK(join(thread) == PTHREAD_CANCELED, "the request was lost");
    // It left the mutex free.
    OK(poundlock_mutex_trylock(&mutex));
    OK(poundlock_mutex_unlock(&mutex));
}

int main(void) {
    limit_seconds(LIMIT);
    turns();
    many();
    deadlines();
    no_cancellation();
    return 0;
}
