// Calls in a signal handler, on the arrays that the interrupted thread is working on. The kernel lets them do
// anything; a handler that interrupted a call on the same array may be told EINTR instead, and nothing hangs
// or is lost.
#include "semarray.h"
#include <sys/time.h>

enum { ROUNDS = 1000 };

static int array;
static volatile sig_atomic_t handled, raised, refused;

static void handler(int signal_number) {
    int saved = errno;
    struct sembuf up = op(1, 1, SEM_UNDO), both[] = {op(2, 1, 0), op(1, 1, 0)};
    if (semop(array, handled % 2 ? &up : both, handled % 2 ? 1 : 2) == 0)
        raised++;
    else if (errno == EINTR)
        refused++;
    else
        FAIL("semop in a handler: %s", strerror(errno));
    int v = semctl(array, 0, GETVAL);
    CHECK(v >= 0 || errno == EINTR, "GETVAL in a handler: %s", strerror(errno));
    handled++;
    errno = saved;
}

static void *other(void *end) {
    while (!*(volatile int *)end) {
        OK(change(array, 0, 1, SEM_UNDO));
        OK(change(array, 0, -1, SEM_UNDO));
    }
    return NULL;
}

int main(void) {
    limit_seconds(60);
    for (int threads = 0; threads < 2; threads++) {
        STAGE(threads ? "in a handler, beside a thread" : "in a handler");
        array = new_array(3);
        handled = raised = refused = 0;
        volatile int end = 0;
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        pthread_t thread = 0;
        if (threads) {
            // The other thread takes no signals.
            MUST(pthread_sigmask(SIG_BLOCK, &mask, NULL));
            thread = spawn(other, (void *)&end);
            MUST(pthread_sigmask(SIG_UNBLOCK, &mask, NULL));
        }
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = handler;
        SYS(sigaction(SIGUSR1, &action, NULL));
        pid_t me = getpid(), child = fork_limited(60);
        if (child == 0) {
            // Signals at any instruction, from outside.
            signal(SIGUSR1, SIG_IGN);
            for (;;) {
                if (kill(me, SIGUSR1) == -1) _exit(0);
                for (volatile int i = 0; i < 3000; i++) continue;
            }
        }
        long done = 0;
        // At least one round of each, however fast the signals come.
        while (handled < ROUNDS || raised == 0 || done == 0) {
            struct sembuf there[] = {op(0, 2, SEM_UNDO), op(2, 1, 0)},
            back[] = {op(2, -1, 0), op(0, -2, SEM_UNDO)};
            OK(semop(array, there, 2));
            OK(semop(array, back, 2));
            OK(change(array, 0, 1, 0));
            OK(change(array, 0, -1, 0));
            done++;
        }
        int status;
        SYS(kill(child, SIGKILL));
        while (waitpid(child, &status, 0) == -1) CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
        end = 1;
        if (threads) join(thread);
        GIVES(value(array, 0), 0);
        GIVES(value(array, 1), raised);
        CHECK(raised + refused == handled, "%d raised, %d refused, of %d", raised, refused, handled);
        remove_array(array);
    }
    return 0;
}
