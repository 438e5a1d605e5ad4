/* What a program is told about its own signal handlers, and how they are called: as ever. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wrestrict"

/* glibc's own, which it does not hide on x86-64. */
enum { RESTORER = 0x04000000 };

static volatile int calls, last_signal, with_information, blocked_inside, reset_inside;
static volatile uintptr_t frame;

static void simple(int signal) {
    calls++;
    last_signal = signal;
    with_information = 0;
    frame = (uintptr_t)__builtin_frame_address(0);
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    blocked_inside = sigismember(&now, signal);
    struct sigaction action;
    sigaction(signal, NULL, &action);
    reset_inside = action.sa_handler == SIG_DFL;
    errno = 0;
}

static void informed(int signal, siginfo_t *about, void *context) {
    simple(signal);
    with_information = context != NULL && about->si_signo == signal && about->si_pid == getpid();
}

static struct sigaction installed(int signal) {
    struct sigaction action;
    CHECK(sigaction(signal, NULL, &action), 0);
    action.sa_flags &= ~RESTORER;
    return action;
}

static void flags(void) {
    static const int all[] = {0, SA_RESTART, SA_NODEFER, SA_RESETHAND, SA_SIGINFO, SA_SIGINFO | SA_RESTART,
                              SA_NODEFER | SA_RESETHAND | SA_SIGINFO, SA_ONSTACK};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        struct sigaction action = {.sa_flags = all[n]};
        if (all[n] & SA_SIGINFO)
            action.sa_sigaction = informed;
        else
            action.sa_handler = simple;
        sigemptyset(&action.sa_mask);
        sigaddset(&action.sa_mask, SIGALRM);
        CHECK(sigaction(SIGUSR1, &action, NULL), 0);
        struct sigaction is = installed(SIGUSR1);
        CHECK(is.sa_flags, all[n]);
        CHECK(sigismember(&is.sa_mask, SIGALRM), 1);
        CHECK(all[n] & SA_SIGINFO ? is.sa_sigaction == informed : is.sa_handler == simple, 1);
        int before = calls;
        errno = EDOM;
        raise(SIGUSR1);
        CHECK(calls, before + 1);
        CHECK(last_signal, SIGUSR1);
        CHECK(with_information, (all[n] & SA_SIGINFO) != 0);
        CHECK(blocked_inside, (all[n] & SA_NODEFER) == 0);
        CHECK(reset_inside, (all[n] & SA_RESETHAND) != 0);
        /* What it put in place, and got back, is the same. */
        struct sigaction old;
        CHECK(sigaction(SIGUSR1, &action, &old), 0);
        if (!(all[n] & SA_RESETHAND))
            CHECK((old.sa_flags & ~RESTORER) == all[n] && old.sa_handler == action.sa_handler, 1);
        struct sigaction *same = &old;
        CHECK(sigaction(SIGUSR1, same, &old), 0);
        CHECK((old.sa_flags & ~RESTORER) == all[n] && old.sa_handler == action.sa_handler, 1);
    }
}

static void other_calls(void) {
    CHECK(signal(SIGUSR2, simple) == SIG_DFL, 1);
    CHECK(installed(SIGUSR2).sa_flags, SA_RESTART);
    CHECK(signal(SIGUSR2, SIG_IGN) == simple, 1);
    CHECK(signal(SIGUSR2, SIG_DFL) == SIG_IGN, 1);
    CHECK(signal(SIGUSR2, simple) == SIG_DFL, 1);
    CHECK(signal(SIGUSR2, simple) == simple, 1);
    int before = calls;
    raise(SIGUSR2);
    CHECK(calls, before + 1);
    CHECK(siginterrupt(SIGUSR2, 1), 0);
    CHECK(installed(SIGUSR2).sa_flags, 0);
    CHECK(installed(SIGUSR2).sa_handler == simple, 1);
    CHECK(siginterrupt(SIGUSR2, 0), 0);
    CHECK(sigset(SIGUSR2, simple) == simple, 1);
    CHECK(sigset(SIGUSR2, SIG_HOLD) == simple, 1);
    CHECK(sigset(SIGUSR2, SIG_DFL) == SIG_HOLD, 1);
    before = calls;
    CHECK(sysv_signal(SIGUSR2, simple) == SIG_DFL, 1);
    raise(SIGUSR2);
    CHECK(calls, before + 1);
    CHECK(installed(SIGUSR2).sa_handler == SIG_DFL, 1);
    struct sigaction action = {.sa_handler = simple};
    CHECK(sigaction(SIGKILL, &action, NULL), -1);
    CHECK(sigaction(1000, &action, NULL), -1);
    CHECK(signal(SIGKILL, simple) == SIG_ERR, 1);
}

static void other_stack(void) {
    static char room[1 << 16];
    stack_t alternate = {.ss_sp = room, .ss_size = sizeof room};
    CHECK(sigaltstack(&alternate, NULL), 0);
    struct sigaction action = {.sa_handler = simple, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL), 0);
    raise(SIGUSR1);
    CHECK(frame >= (uintptr_t)room && frame < (uintptr_t)room + sizeof room, 1);
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR1, &action, NULL), 0);
    raise(SIGUSR1);
    CHECK(frame >= (uintptr_t)room && frame < (uintptr_t)room + sizeof room, 0);
}

int main(void) {
    flags();
    other_calls();
    other_stack();
    return failures();
}
