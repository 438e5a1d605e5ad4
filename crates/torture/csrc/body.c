/* The threads of the process under test: workers, warden, monitor; and the audit at the end. */
#define _GNU_SOURCE
#include "torture.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_key_t at_exit;

/* ---- workers ---- */

/* Weights in the different mixes: of everything, locks almost alone, condition variables, ends of lives. */
#define MIXES 4
static const struct {
    unsigned weight[MIXES];
    void (*act)(void);
} actions[] = {
    {{560, 2000, 200, 200}, act_plain},
    {{250, 900, 50, 60}, act_share},
    {{80, 100, 10, 20}, act_nested},
    {{110, 1, 600, 60}, act_produce},
    {{80, 1, 300, 40}, act_consume},
    {{60, 1, 150, 40}, act_consume_timed},
    {{5, 1, 10, 40}, act_consume_cancellable},
    {{12, 12, 1, 1}, act_misuse},
    {{5, 1, 1, 10}, act_results},
    {{60, 2, 10, 500}, act_ephemeral},
    {{6, 1, 10, 60}, act_meeting},
};

/* What one thread does once every so many ticks. */
static struct {
    _Atomic uint64_t next;
    uint64_t ticks;
    void (*act)(void);
} due[] = {{0, 1, act_fork}, {0, 3, act_vfork}, {0, 10, act_spawn}, {0, 5, act_ladder}};

static void act(void) {
    for (unsigned i = 0; i < sizeof due / sizeof *due; i++) {
        uint64_t now = atomic_load_explicit(&world.tick, memory_order_relaxed);
        uint64_t next = atomic_load_explicit(&due[i].next, memory_order_relaxed);
        if (now >= next && atomic_compare_exchange_strong(&due[i].next, &next, now + due[i].ticks)) {
            due[i].act();
            return;
        }
    }
    unsigned total = 0, mix = epoch().mix % MIXES;
    for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++) total += actions[i].weight[mix];
    unsigned r = below(total);
    for (unsigned i = 0;; i++) {
        if (r < actions[i].weight[mix]) {
            actions[i].act();
            return;
        }
        r -= actions[i].weight[mix];
    }
}

static void leaving(void *arg) {
    (void)arg;
    doing(EXITING, NULL, NULL, 0);
    atomic_store(&self->phase, LEAVING);
}

/* Thread-specific data's destructor: locks while the thread is being taken apart, again in every round there
 * is, and so also after anybody else's destructor has run. */
static void destructor(void *value) {
    uintptr_t round = (uintptr_t)value;
    struct lock *lock = &world.lock[below(world.ordinary)];
    if (acquire(lock, BY_WHATEVER, false)) {
        did(DID_DESTRUCTOR);
        release(lock);
    }
    doing(EXITING, NULL, NULL, 0);
    if (round < PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(at_exit, (void *)(round + 1));
}

static void *worker_main(void *arg) {
    struct slot *slot = arg;
    become(slot);
    atomic_store(&slot->tid, (int)syscall(SYS_gettid));
    pthread_setspecific(at_exit, (void *)1);
    sigset_t set = pesterers();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    doing(THINKING, NULL, NULL, 0);
    bool abruptly = chance(300);
    pthread_cleanup_push(leaving, NULL);
    /* A short life as often as a long one. */
    for (slot->lives = 1 + below(1u << below(13)); slot->lives-- > 0;) {
        if (atomic_load_explicit(&world.stopping, memory_order_relaxed)) break;
        halt_if_violated();
        act();
        think();
    }
    if (abruptly) pthread_exit(NULL);
    pthread_cleanup_pop(1);
    return NULL;
}

/* ---- warden ---- */

int create(pthread_t *thread, void *(*main)(void *), void *arg) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256u * 1024u);
    int rc = pthread_create(thread, &small, main, arg);
    pthread_attr_destroy(&small);
    return rc;
}

static void start(struct slot *slot) {
    slot->generation++;
    slot->random = mix(world.seed ^ mix((uint64_t)slot->number << 32 | slot->generation));
    slot->cancel_sent = false;
    slot->pestered = chance(500);
    atomic_store(&slot->cancellable, 0);
    atomic_store(&slot->tid, 0);
    atomic_store(&slot->name, NULL);
    atomic_store(&slot->object, NULL);
    atomic_store(&slot->what, STARTING);
    atomic_store(&slot->since, atomic_load(&world.tick));
    atomic_store(&slot->phase, RUNNING);
    int rc = create(&slot->thread, worker_main, slot);
    if (rc != 0)
        atomic_store(&slot->phase, EMPTY); /* no room now: later */
    else
        did(DID_THREADS);
}

static void reap(struct slot *slot) {
    static char who[32];
    snprintf(who, sizeof who, "thread %u", slot->number);
    doing(JOINING, who, NULL, 0);
    pthread_join(slot->thread, NULL);
    atomic_store(&slot->phase, EMPTY);
    doing(THINKING, NULL, NULL, 0);
}

static void *warden_main(void *arg) {
    become(arg);
    unsigned next = 0;
    for (;;) {
        bool stopping = atomic_load(&world.stopping), all_gone = true;
        unsigned begun = 0;
        doing(THINKING, NULL, NULL, 0);
        halt_if_violated();
        /* A share of the slots each time, so that with thousands of threads the rest is still done often. */
        for (unsigned i = 0; i < world.threads && (i < 64 || stopping); i++) {
            struct slot *slot = &world.slot[next];
            next = (next + 1) % world.threads;
            int phase = atomic_load(&slot->phase);
            if (phase == LEAVING)
                reap(slot);
            else if (phase == EMPTY && !stopping && begun++ < 16) {
                doing(CREATING, NULL, NULL, 0);
                start(slot);
            } else if (phase == RUNNING && !slot->cancel_sent && atomic_load(&slot->cancellable)) {
                if (chance(300)) spin(below(3000));
                pthread_cancel(slot->thread);
                slot->cancel_sent = true;
                /* Its way out is interrupted too. */
                if (chance(500)) pester(slot, draw());
            }
            all_gone = all_gone && atomic_load(&slot->phase) == EMPTY;
        }
        if (stopping && all_gone) break;
        for (unsigned i = below(4); i > 0; i--) {
            struct slot *slot = &world.slot[below(world.threads)];
            int phase = atomic_load(&slot->phase);
            if (slot->pestered && (phase == RUNNING || phase == LEAVING)) pester(slot, draw());
        }
        sleep_us(20 + below(200));
    }
    doing(EXITING, NULL, NULL, 0);
    atomic_store(&world.workers_gone, 1);
    return NULL;
}

/* ---- monitor ---- */

static int64_t monotonic_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t acquisitions(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < world.lock_count; i++) sum += world.lock[i].entries;
    return sum;
}

/* Nobody got on, or one did not. */
static void look_for_hangs(void) {
    static uint64_t last_sum, last_change;
    uint64_t now = atomic_load(&world.tick), sum = 0;
    unsigned tally[WHATS] = {0};
    char text[512];
    for (unsigned i = 0; i < world.slots; i++) {
        struct slot *slot = &world.slot[i];
        sum += atomic_load_explicit(&slot->beats, memory_order_relaxed);
        if (atomic_load(&slot->phase) == EMPTY) continue;
        unsigned what = atomic_load(&slot->what);
        uint64_t since = atomic_load(&slot->since);
        if (what < WHATS) tally[what]++;
        if (now > since && now - since > 2 * world.patience) {
            describe(text, sizeof text, slot);
            violation("no progress: thread %u (tid %d) is %s, while others go on", i, atomic_load(&slot->tid),
                      text);
        }
    }
    /* The warden and the feeder have beats of their own as long as they run: only the workers' count. */
    for (unsigned i = world.threads; i < world.slots; i++)
        sum -= atomic_load_explicit(&world.slot[i].beats, memory_order_relaxed);
    if (sum != last_sum) {
        last_sum = sum;
        last_change = now;
    } else if (now - last_change > world.patience) {
        const struct slot *longest = NULL;
        for (unsigned i = 0; i < world.threads; i++) {
            const struct slot *slot = &world.slot[i];
            unsigned what = atomic_load(&slot->what);
            if (atomic_load(&slot->phase) != EMPTY && what != THINKING && what != HOLDING &&
                (!longest || atomic_load(&slot->since) < atomic_load(&longest->since)))
                longest = slot;
        }
        if (longest) describe(text, sizeof text, longest);
        violation("no progress by any thread for %.1f s: %u in lock, %u in timed lock, %u in unlock, %u in "
                  "condition "
                  "waits, %u holding, %u exiting; thread %d is %s",
                  (double)world.patience * TICK_MS / 1000, tally[LOCKING], tally[TIMED_LOCKING],
                  tally[UNLOCKING], tally[WAITING] + tally[TIMED_WAITING] + tally[CANCELLABLE_WAITING],
                  tally[HOLDING], tally[EXITING], longest ? (int)longest->number : -1,
                  longest ? text : "elsewhere");
    }
}

static void next_epoch(uint64_t number) {
    static const uint16_t hot[] = {0, 300, 600, 900, 1000};
    uint64_t random = mix(world.seed + number * 0x9e3779b97f4a7c15u);
    struct epoch epoch = {
        .hot = (uint16_t)(random >> 8),
        .hot_permille = hot[random % 5],
        .hold = (uint8_t)(random >> 24),
        .think = (uint8_t)(random >> 32),
        .mix = (uint8_t)(random >> 40),
        .step = random >> 48 & 1 ? (uint8_t)(random >> 56 & 31) : 0,
    };
    /* Everybody at one lock, again and again: those who sleep are overtaken until they must be helped. */
    if ((random >> 52 & 3) == 0) {
        epoch.hot_permille = 1000;
        epoch.hold = 4;
        epoch.think = 5;
        epoch.mix = 1;
    }
    atomic_store(&world.epoch, epoch);
}

/* Ticks until `until` (in ms of the monitor's own clock) or until the workers are gone. */
static void watch(uint64_t until) {
    static uint64_t epochs;
    static int64_t last;
    static uint64_t elapsed;
    if (last == 0) last = monotonic_ms();
    while (elapsed < until && !atomic_load(&world.workers_gone)) {
        sleep_us(TICK_MS * 1000);
        halt_if_violated();
        int64_t now = monotonic_ms();
        int64_t step = now - last;
        last = now;
        /* Time in which this process did not run does not count against its threads. */
        elapsed += (uint64_t)(step > 2 * (int)TICK_MS ? 2 * (int)TICK_MS : step);
        atomic_store(&world.tick, elapsed / TICK_MS);
        look_for_hangs();
        if (elapsed / (2 * TICK_MS) > epochs) next_epoch(++epochs);
        say("beat %lu %lu", (unsigned long)elapsed, (unsigned long)acquisitions());
    }
}

/* ---- the audit ---- */

static const char *const counter_text[] = {
#define X(name, text) text,
    COUNTERS(X)
#undef X
};

static void audit(void) {
    drain_ephemeral();
    audit_pools();
    for (unsigned i = 0; i < world.lock_count; i++) {
        struct lock *lock = &world.lock[i];
        uint64_t sum = handler_entries(i);
        for (unsigned j = 0; j < world.slots; j++) sum += world.slot[j].entries[i];
        VIOLATION_IF(sum != lock->entries || lock->first != lock->entries,
                     "%s: its threads counted %lu critical sections, the lock protected %lu", lock->name,
                     (unsigned long)sum, (unsigned long)lock->entries);
        check_guards(lock->cell, lock->name);
        for (size_t b = lock->kind->size; b < OBJECT_BYTES; b++)
            VIOLATION_IF(lock->cell->object[b] != 0x5a, "memory behind the object of %s was written",
                         lock->name);
        int rc = plain_call(lock, TRYLOCK, NULL);
        VIOLATION_IF(rc != 0, "trylock of %s, which nobody holds any more, returned %s", lock->name,
                     error_name(rc));
        rc = plain_call(lock, UNLOCK, NULL);
        if (rc == 0) rc = plain_call(lock, DESTROY, NULL);
        VIOLATION_IF(rc != 0, "the last unlock or destroy of %s returned %s", lock->name,
                     error_name(rc));
    }
}

static void report(void) {
    for (unsigned i = 0; i < world.lock_count; i++)
        say("lock %lu %s", (unsigned long)world.lock[i].entries, world.lock[i].name);
    for (unsigned c = 0; c < COUNTER_COUNT; c++) {
        uint64_t sum = 0;
        for (unsigned i = 0; i < world.slots; i++) {
            const struct slot *slot = &world.slot[i];
            sum += slot->did[c];
            if (c >= DID_HANDLER && c <= DID_HANDLER_SPUN)
                sum += atomic_load(&slot->handler_did[c - DID_HANDLER]);
        }
        say("count %lu %s", (unsigned long)sum, counter_text[c]);
    }
}

static void start_helper(struct slot *slot, void *(*main)(void *)) {
    slot->generation = 1;
    slot->random = mix(world.seed ^ mix((uint64_t)slot->number << 32));
    atomic_store(&slot->phase, RUNNING);
    int rc = create(&slot->thread, main, slot);
    VIOLATION_IF(rc != 0, "torture itself: no thread could be created");
}

/* Every call must reach the library under test: one that escapes to another would break exclusion, or hide
 * that nothing is being tested. NULL: the program's own. */
void check_symbols(const char *library, const char *const symbols[]) {
    for (unsigned i = 0; library && symbols[i]; i++) {
        Dl_info info;
        void *address = dlsym(RTLD_DEFAULT, symbols[i]);
        VIOLATION_IF(!address || !dladdr(address, &info) || !info.dli_fname,
                     "torture itself: nothing defines %s", symbols[i]);
        VIOLATION_IF(!strstr(info.dli_fname, library), "%s is bound to %s, not to %s", symbols[i],
                     info.dli_fname, library);
    }
}

/* Everything; returns only if nothing was violated. Standard output is the pipe to the watchdog. */
void poundlock_torture_body(const struct plan *plan) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the watchdog's end is ours */
    check_symbols(plan->library, symbols);
    world.seed = plan->seed;
    world.threads = plan->threads > MAX_SLOTS ? MAX_SLOTS : plan->threads;
    world.spinners = plan->spinners;
    world.shared_spinners = plan->shared_spinners;
    world.slots = world.threads + 2;
    world.reads_once = plan->reads_once;
    world.rwlocks_are_glibcs = rwlocks_are_glibcs();
    world.patience = plan->patience_ms / TICK_MS;
    world.slot = calloc(world.slots, sizeof *world.slot);
    VIOLATION_IF(!world.slot, "torture itself: out of memory");
    for (unsigned i = 0; i < world.slots; i++) world.slot[i].number = i;
    for (unsigned i = 0; i < kind_count; i++) new_lock(kinds[i].name, kinds[i].name);
    world.ordinary = world.lock_count;
    make_pools();
    make_handlers();
    make_stepping();
    make_notes();
    pthread_key_create(&at_exit, destructor);
    /* Workers unblock the pesterer's signals for themselves; nobody else takes them. */
    block_pesterers(NULL);
    next_epoch(0);

    struct slot *warden = &world.slot[world.threads], *feeder = &world.slot[world.threads + 1];
    start_helper(warden, warden_main);
    start_helper(feeder, feeder_main);
    watch(plan->milliseconds);
    atomic_store(&world.stopping, 1);
    watch(UINT64_MAX);
    pthread_join(warden->thread, NULL);
    pthread_join(feeder->thread, NULL);
    become(warden);
    audit();
    report();
    say("done");
}
