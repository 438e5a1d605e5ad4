//! `poundlock ipcrm`: semaphore arrays of ours removed, with their sleepers told.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use poundlock_semarray::{self as semarray, Listed};

use crate::ipcs::parse_id;
use crate::message::{Failure, say, status};
use crate::semaphores::{self, check_domain};

/// Which arrays to remove.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct Args {
    /// Arrays by id, as `poundlock ipcs` lists them
    #[arg(value_name = "ID", group = "which")]
    ids: Vec<String>,
    /// Arrays by key: decimal, or hexadecimal after 0x
    #[arg(long, value_name = "KEY", num_args = 1.., group = "which", allow_negative_numbers = true)]
    key: Vec<String>,
    /// All arrays that there are, whoever made them; asks first if standard input is a terminal
    #[arg(long, conflicts_with_all = ["ids", "key"], group = "which")]
    all: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Removes them. What can be removed is, whatever becomes of the others.
pub(crate) fn main(args: Args) -> ExitCode {
    match ipcrm(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(status::NO),
        Err(failure) => failure.report(),
    }
}

/// Whether all were removed.
fn ipcrm(args: &Args) -> Result<bool, Failure> {
    // All that was typed makes sense, or nothing is removed.
    let ids = args.ids.iter().map(|id| parse_id(id)).collect::<Result<Vec<_>, _>>()?;
    let keys = args.key.iter().map(|key| parse_key(key)).collect::<Result<Vec<_>, _>>()?;
    check_domain()?;
    let mut arrays: Vec<Listed> = Vec::new();
    semarray::list(|array| arrays.push(array));
    if args.all {
        return remove_all(arrays, args.yes);
    }
    let mut good = true;
    let mut found = |id, what: &str| match remove(id, what) {
        Removal::Done => {}
        Removal::Gone => {
            say(format_args!("there is no {}: see `poundlock ipcs`", what.trim_start_matches("the ")));
            good = false;
        }
        Removal::Failed => good = false,
    };
    for id in ids {
        found(id, &format!("array {id}"));
    }
    for key in keys {
        let what = format!("the array of key {}", semaphores::key(key));
        // Nobody's id, if there is none.
        found(arrays.iter().find(|array| array.settings.key == key).map_or(-1, |array| array.id), &what);
    }
    Ok(good)
}

/// Removes all that were listed, and says which they were. On a terminal somebody has to agree first.
fn remove_all(mut arrays: Vec<Listed>, yes: bool) -> Result<bool, Failure> {
    let print = |line: &str| {
        writeln!(io::stdout().lock(), "{line}")
            .map_err(|error| Failure::new(status::OURS, format_args!("standard output: {error}")))
    };
    if arrays.is_empty() {
        print("there are no arrays")?;
        return Ok(true);
    }
    arrays.sort_by_key(|array| array.id);
    // Before any is removed: who has it mapped is not to be seen afterwards.
    let described: Vec<(i32, String)> = arrays.iter().map(|array| (array.id, describe(array))).collect();
    if !yes && io::stdin().is_terminal() && !agreed(&described)? {
        return Err(Failure::new(status::NO, "nothing was removed"));
    }
    let mut good = true;
    // Everything is removed also if nobody reads what is printed.
    let mut printed = Ok(());
    for (id, described) in described {
        match remove(id, &format!("array {id}")) {
            Removal::Done => printed = printed.and(print(&format!("removed {described}"))),
            // Somebody else was faster: it is gone, which is what was asked for.
            Removal::Gone => {}
            Removal::Failed => good = false,
        }
    }
    printed.map(|()| good)
}

fn describe(array: &Listed) -> String {
    let counted =
        |count: u32, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    format!(
        "array {}, key {}, {}, {}, {}",
        array.id,
        semaphores::key(array.settings.key),
        counted(array.semaphores, "semaphore", "semaphores"),
        counted(array.sleepers, "sleeper", "sleepers"),
        counted(array.processes(), "process", "processes"),
    )
}

/// Asks whether these are to be removed. Whoever ends the input does not agree.
fn agreed(arrays: &[(i32, String)]) -> Result<bool, Failure> {
    let mut question: String = arrays.iter().map(|(_, described)| format!("{described}\n")).collect();
    question += match arrays {
        [_] => "remove it? [y/N] ",
        _ => "remove all of them? [y/N] ",
    };
    let mut answer = String::new();
    let asked = io::stderr().lock().write_all(question.as_bytes());
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(|error| {
        Failure::new(status::OURS, format_args!("nobody can be asked: {error} (--yes does not ask)"))
    })?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// What became of an array that was to be removed.
enum Removal {
    Done,
    /// It was not there.
    Gone,
    /// It still is, and that was said.
    Failed,
}

fn remove(id: i32, what: &str) -> Removal {
    match semarray::remove(id) {
        Ok(_) => Removal::Done,
        Err(libc::EINVAL | libc::EIDRM) => Removal::Gone,
        Err(libc::EPERM) => {
            say(format_args!("{what} is somebody else's: it was not removed"));
            Removal::Failed
        }
        Err(errno) => {
            let error = io::Error::from_raw_os_error(errno);
            say(format_args!("{what} could not be removed: {}", crate::program::reason(&error)));
            Removal::Failed
        }
    }
}

/// A key, as it was typed. Private arrays share the key 0, so that is none.
fn parse_key(text: &str) -> Result<i32, Failure> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // As `ipcs` writes it: with the sign's bit among the digits.
        Some(hex) => u32::from_str_radix(hex, 16).ok().map(u32::cast_signed),
        None => text.parse::<i64>().ok().and_then(|number| {
            i32::try_from(number).ok().or_else(|| u32::try_from(number).ok().map(u32::cast_signed))
        }),
    };
    match number {
        Some(0) => Err(Failure::new(
            status::USAGE,
            "private arrays have the key 0, all of them: name them by their ids",
        )),
        Some(key) => Ok(key),
        None => Err(Failure::new(
            status::USAGE,
            format_args!("'{text}' is no key: a number is, hexadecimal after 0x"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_key;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = |text| parse_key(text).ok();
        assert_eq!(key("17"), Some(17));
        assert_eq!(key("-1"), Some(-1));
        assert_eq!(key("0x00000011"), Some(17));
        assert_eq!(key("0xffffffff"), Some(-1));
        assert_eq!(key("4294967295"), Some(-1));
        for wrong in ["0", "0x0", "", "0x", "x", "4294967296", "0x100000000", "1.5"] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
    }
}
