//! Words for what the sampler found.

use super::sampler::Sleep;

/// What a thread that sleeps waits for.
pub(super) fn asleep(sleep: &Sleep) -> &'static str {
    match sleep {
        Sleep::Lock => "waiting for locks",
        Sleep::Condition => "for conditions",
        Sleep::Barrier => "at barriers",
        Sleep::Semaphore => "for semaphores",
        Sleep::Join => "for the ends of threads",
        Sleep::Futex => "in futex calls of locks that are not counted",
        Sleep::Call(_) if sleep.is_for_events() => "for events",
        Sleep::Call(_) => "in system calls",
        Sleep::OutsideCalls => "stopped or reading a page",
        Sleep::Hidden => "asleep, in a call that is hidden",
    }
}
