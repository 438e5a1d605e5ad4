//! The child process of `poundlock torture`: locks, or semaphore arrays, under real threads, signals,
//! cancellation, forks and sudden exits, against a checker of mutual exclusion and of progress. And the
//! watchdog that reads what the child says.
//!
//! The child is the command once more, started as `poundlock run` starts a program, so that the pthread
//! symbols are those that users get. Its body is C (`csrc`, which also says why). It writes lines on its
//! standard output, a pipe:
//!
//! | line | meaning |
//! | --- | --- |
//! | `beat MS N` | the child's monitor is alive; MS of its own clock have passed, N critical sections were entered |
//! | `lock N NAME`, `count N TEXT` | the report |
//! | `done` | all checks passed |
//! | `violation TEXT` | a check failed; `thread ...` and `array ...` lines and `end` follow, and the child stands still |

mod body;
mod rwlocks;
mod watch;

pub use body::{
    ARRAYS, BODY, ChildArgs, EXECUTED, ExecutedArgs, LANES, MAX_PROCESSES, MAX_THREADS, arrays, body,
    executed,
};
pub use watch::{Outcome, Report, Watch, backtrace, end, heed_signals};
