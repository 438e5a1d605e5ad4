//! What lets another thread go on and is no lock: a recording has it, and of semaphores that are looked at as
//! locks it is the release.

use super::*;

both! {
    sched_yield = SCHED_YIELD, before_yield, after_yield;
    pthread_yield = SCHED_YIELD, before_yield, after_yield;
    thrd_yield = SCHED_YIELD, before_yield, after_yield;
    sem_post = SEM_POST, before_post, after_post;
}

fn counts() -> bool {
    mode::get().counted() && (stat::RECORDER.is_traced() || check::semaphores())
}

extern "C" fn before_yield(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize) -> c_int {
    stat::RECORDER.yields();
    WAIT
}

extern "C" fn after_yield(_: c_int) {
    stat::RECORDER.yielded();
}

extern "C" fn before_post(semaphore: usize, _: usize, _: usize, _: usize, pc: usize, sp: usize) -> c_int {
    // Before the post: afterwards the semaphore may be gone.
    let (posted, site) = (stat::at(semaphore, LockKind::Semaphore), CallSite { pc, sp });
    if check::semaphores() {
        stat::RECORDER.semaphore_posted(posted, site);
    } else {
        stat::RECORDER.posts(posted, site);
    }
    WAIT
}

extern "C" fn after_post(_: c_int) {
    stat::RECORDER.call_ended();
}
