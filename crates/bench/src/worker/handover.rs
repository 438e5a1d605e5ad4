//! Threads that take turns on a mutex.

use serde::{Deserialize, Serialize};

use super::turns;
use crate::abi::{Abi, CMutex, Kind};
use crate::error::{Error, Result};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) turns: turns::Task,
}

pub(crate) fn run(abi: Abi, task: &Task) -> Result<turns::Answer> {
    let answer = turns::drive(CMutex::new(abi, task.kind)?, &task.turns)?;
    if answer.unfinished > 0 {
        // Who waits for a mutex sleeps, and is to be woken.
        return Err(Error::Options(format!("{} threads do not come to their ends", answer.unfinished)));
    }
    Ok(answer)
}
