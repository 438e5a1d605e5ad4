/*
 * A preemption at any instruction.
 *
 * The windows that matter in a lock are a few instructions wide; a scheduler that switches a thousand times a
 * second finds them once in hours. Where the processor can trap after each instruction and lets a program ask
 * for it, a call is now and then single-stepped by its own thread for a random number of instructions, put to
 * sleep there for as long as others need to pass by, and let go.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)

#define TRAP_FLAG 0x100

/* Below the red zone: the compiler does not know that the stack is used here. */
#define SET_FLAGS(operation)                                                                                 \
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\tpushfq\n\t" operation                                       \
                     "\n\tpopfq\n\tleaq 128(%%rsp), %%rsp" ::                                                \
                         : "cc", "memory")

static void on_trap(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    int error = errno;
    (void)signal;
    (void)info;
    if (self && self->steps > 0) {
        self->steps = self->steps - 1;
        if (self->steps > 0) return; /* sigreturn puts the flag back */
        struct timespec t = {0, (long)self->pause_us * 1000};
        /* Not through libc, for which it would be a cancellation point. */
        syscall(SYS_nanosleep, &t, NULL);
    }
    at->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    errno = error;
}

void make_stepping(void) {
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(
        &trap.sa_mask); /* a handler in there that asked for steps would trap while traps are blocked */
    sigaction(SIGTRAP, &trap, NULL);
}

static void choose(uint64_t random) {
    self->pause_us = 1 + (unsigned)(random >> 8) % (random % 8 == 0 ? 1000 : 100);
    self->steps = 1 + (unsigned)(random >> 32) % (4u << (random >> 3) % 8);
}

void step_begin(unsigned permille) {
    if (!chance(permille)) return;
    choose(draw());
    did(DID_STEPPED);
    SET_FLAGS("orq $0x100, (%%rsp)");
}

/* From a signal handler: what it interrupted is stopped some instructions further on. The random number is
 * the caller's, since the interrupted code may be drawing one. */
void step_interrupted(void *context, uint64_t random) {
    ucontext_t *at = context;
    if (self->steps > 0) return;
    choose(random);
    at->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

void step_end(void) {
    if (self->steps == 0) return;
    SET_FLAGS("andq $~0x100, (%%rsp)");
    self->steps = 0;
}

#else

void make_stepping(void) {}
void step_begin(unsigned permille) { (void)permille; }
void step_end(void) {}
void step_interrupted(void *context, uint64_t random) { (void)context, (void)random; }

#endif
