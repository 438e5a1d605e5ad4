// What the programs of this directory share. Each does nothing that is wrong, in a way that is easily taken for
// wrong: under `poundlock check` it must work as ever, and nothing may be found. It exits 0, or says which
// result was another one and exits 1.
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int failed;

#define CHECK(what, wanted)                                                                                    \
    do {                                                                                                       \
        long result_ = (long)(what), wanted_ = (long)(wanted);                                                 \
        if (result_ != wanted_) {                                                                              \
            dprintf(2, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #what, result_, wanted_);            \
            failed = 1;                                                                                        \
        }                                                                                                      \
    } while (0)

static int failures(void) {
    return failed;
}

#endif
