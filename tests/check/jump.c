/* Handlers that are left by a jump, with and without their mask, on another stack, and inside of each other; and a
 * coroutine whose stack is an array on the thread's own.
 * Afterwards the thread is in no handler, so what it locks with the signal open is its own affair. */
#define _GNU_SOURCE
#include "check.h"

#include <setjmp.h>
#include <ucontext.h>
#include <signal.h>
#include <stdlib.h>

static sigjmp_buf back;
static pthread_mutex_t used = PTHREAD_MUTEX_INITIALIZER;
static int with_jump;

static void lock_and_unlock(pthread_mutex_t *lock) {
    CHECK(pthread_mutex_lock(lock), 0);
    CHECK(pthread_mutex_unlock(lock), 0);
}

static void jump(int signal) {
    (void)signal;
    if (with_jump)
        siglongjmp(back, 1);
}

static void jump_with_information(int signal, siginfo_t *about, void *context) {
    (void)about;
    (void)context;
    jump(signal);
}

/* Further down than any handler was. */
static __attribute__((noinline)) void deep(int levels) {
    volatile char room[1024];
    for (size_t n = 0; n < sizeof room; n++)
        room[n] = (char)levels;
    if (levels)
        deep(levels - 1);
    else
        lock_and_unlock(&used);
    (void)room[0];
}

static void install(int number, int flags) {
    struct sigaction action = {.sa_flags = flags};
    if (flags & SA_SIGINFO)
        action.sa_sigaction = jump_with_information;
    else
        action.sa_handler = jump;
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(number, &action, NULL), 0);
}

static void leave_by_a_jump(int number, int mask) {
    with_jump = 1;
    if (!sigsetjmp(back, mask))
        raise(number);
    with_jump = 0;
    deep(16);
    deep(0);
    lock_and_unlock(&used);
    /* Without the mask the signal stays blocked: open it, as such programs do. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
    deep(16);
    lock_and_unlock(&used);
}

static void *other(void *unused) {
    (void)unused;
    lock_and_unlock(&used);
    return NULL;
}

static void from_another_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other, NULL), 0);
    CHECK(pthread_join(thread, NULL), 0);
}

static ucontext_t outside, inside;

static void coroutine(void) {
    lock_and_unlock(&used);
    swapcontext(&inside, &outside);
}

/* Its lock lies below the coroutine's stack, which is an array of the caller's. */
static __attribute__((noinline)) void with_a_lock_of_its_own(void) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    CHECK(pthread_mutex_lock(&own), 0);
    swapcontext(&outside, &inside);
    lock_and_unlock(&used);
    CHECK(pthread_mutex_unlock(&own), 0);
}

static __attribute__((noinline)) void coroutine_on_the_stack(void) {
    char stack[1 << 16];
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    with_a_lock_of_its_own();
}

static void nested(int signal) {
    (void)signal;
    raise(SIGUSR2);
}

int main(void) {
    coroutine_on_the_stack();
    static const int kinds[] = {0, SA_SIGINFO, SA_NODEFER, SA_SIGINFO | SA_NODEFER, SA_SIGINFO | SA_ONSTACK,
                                SA_ONSTACK | SA_NODEFER};
    stack_t alternate = {.ss_size = 1 << 16};
    alternate.ss_sp = malloc(alternate.ss_size);
    CHECK(sigaltstack(&alternate, NULL), 0);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        install(SIGUSR1, kinds[kind]);
        for (int round = 0; round < 3; round++) {
            leave_by_a_jump(SIGUSR1, 1);
            leave_by_a_jump(SIGUSR1, 0);
            from_another_thread();
        }
    }
    /* Two handlers are left at once. */
    install(SIGUSR2, 0);
    signal(SIGUSR1, nested);
    leave_by_a_jump(SIGUSR1, 1);
    from_another_thread();
    return failures();
}
