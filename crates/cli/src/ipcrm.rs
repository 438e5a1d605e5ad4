//! `poundlock ipcrm`: semaphore arrays of ours removed, with their sleepers told.

use std::process::ExitCode;

use poundlock_linux::sem;

use crate::ipcs::parse_id;
use crate::message::{Failure, say, status};
use crate::semaphores::check_domain;

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
    /// All arrays that there are
    #[arg(long, conflicts_with_all = ["ids", "key"], group = "which")]
    all: bool,
}

/// Removes them. What can be removed is, whatever becomes of the others.
pub(crate) fn main(args: Args) -> ExitCode {
    match ipcrm(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

/// Whether all were removed.
fn ipcrm(args: &Args) -> Result<bool, Failure> {
    // All that was typed makes sense, or nothing is removed.
    let ids = args.ids.iter().map(|id| parse_id(id)).collect::<Result<Vec<_>, _>>()?;
    let keys = args.key.iter().map(|key| parse_key(key)).collect::<Result<Vec<_>, _>>()?;
    check_domain()?;
    let mut arrays = Vec::new();
    sem::list(|array| arrays.push((array.id, array.settings.key)));
    let mut good = true;
    if args.all {
        for (id, _) in arrays {
            // Somebody else may have been faster: it is gone, which is what was asked for.
            good &= remove(id, &format!("array {id}"), true);
        }
        return Ok(good);
    }
    for id in ids {
        good &= remove(id, &format!("array {id}"), false);
    }
    for key in keys {
        match arrays.iter().find(|(_, of)| *of == key) {
            Some((id, _)) => good &= remove(*id, &format!("the array of key {key:#010x}"), false),
            None => {
                say(format_args!("there is no array of key {key:#010x}: see `poundlock ipcs`"));
                good = false;
            }
        }
    }
    Ok(good)
}

fn remove(id: i32, what: &str, may_be_gone: bool) -> bool {
    match sem::remove(id) {
        Ok(_) => true,
        Err(libc::EINVAL | libc::EIDRM) if may_be_gone => true,
        Err(libc::EINVAL | libc::EIDRM) => {
            say(format_args!("there is no {}: see `poundlock ipcs`", what.trim_start_matches("the ")));
            false
        }
        Err(libc::EPERM) => {
            say(format_args!("{what} is somebody else's: it was not removed"));
            false
        }
        Err(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            say(format_args!("{what} could not be removed: {}", crate::program::reason(&error)));
            false
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
