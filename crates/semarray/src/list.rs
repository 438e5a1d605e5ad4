//! Lists arrays.

use poundlock_core::semarray::{Report, Scheme, Settings, Times};

use crate::domain::{self, Domain, slot_of};
use crate::system::{self, File, Path};
use crate::{process, table};

/// An array of the domain.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its id.
    pub id: i32,
    /// Its key, whose it is, and its mode.
    pub settings: Settings,
    /// How many semaphores it has.
    pub semaphores: u32,
    /// How it works.
    pub scheme: Scheme,
    /// When it was last used.
    pub times: Times,
    /// What happened to its lock.
    pub report: Report,
    /// How many calls sleep at it.
    pub sleepers: u32,
}

impl Listed {
    /// How many processes have it mapped: those that have used it, and their children, without the calling
    /// one, which has it mapped to look. Reads `/proc`; processes that may not be looked at are not counted.
    pub fn processes(&self) -> u32 {
        let Some(domain) = domain::known() else { return 0 };
        let path = domain.array_path(slot_of(self.id));
        let Ok(name) = path.get() else { return 0 };
        let others = process::each(domain.registry).filter(|id| *id != system::process_id());
        others.map(|id| u32::from(maps(id, name.to_bytes()))).sum()
    }
}

/// Calls `each` with every array of this process's domain. Those that are made or removed meanwhile may be
/// missed.
pub fn list(each: impl FnMut(Listed)) {
    let Some(domain) = domain::get().filter(|_| process::process().is_some()) else { return };
    let arrays = domain.registry.arrays().iter().enumerate();
    arrays.filter_map(|(slot, known)| listed(domain, known.id(slot)?)).for_each(each);
}

/// What [`list`] says of one array.
pub fn describe(id: i32) -> Option<Listed> {
    let domain = domain::get().filter(|_| process::process().is_some())?;
    listed(domain, id)
}

fn listed(domain: &'static Domain, id: i32) -> Option<Listed> {
    let entered = table::open(domain, id).ok()?;
    let array = entered.array;
    (!array.is_removed()).then(|| Listed {
        id,
        settings: array.settings(),
        semaphores: array.semaphores(),
        scheme: array.scheme(),
        times: array.times(),
        report: array.report(),
        sleepers: array.sleepers(),
    })
}

/// Calls `each` with every process that has taken from a semaphore with `SEM_UNDO`, and how much it would give back
/// at its end. Takes no lock of the array. Whether there is such an array.
pub fn holders(id: i32, num: u32, each: impl FnMut(u32, u32)) -> bool {
    let domain = domain::get().filter(|_| process::process().is_some());
    let Some(entered) = domain.and_then(|domain| table::open(domain, id).ok()) else { return false };
    let there = !entered.array.is_removed();
    if there {
        entered.array.holders(num, each);
    }
    there
}

/// Whether the process has the file of that name mapped.
fn maps(id: u32, name: &[u8]) -> bool {
    let path = Path::new().and(b"/proc/").and_number(id.into()).and(b"/maps");
    let Ok(file) = path.get().and_then(|path| File::open(path, libc::O_RDONLY, 0)) else { return false };
    // The beginning of an incomplete line is kept in front of what is read next.
    let mut buffer = [0u8; 8192];
    let (mut kept, mut offset) = (0, 0);
    loop {
        let room = &mut buffer[kept..];
        let Ok(read) = file.read(room, offset) else { return false };
        offset += read as i64;
        let filled = kept + read;
        let text = &buffer[..filled];
        if text.split(|byte| *byte == b'\n').any(|line| line.ends_with(name)) {
            return true;
        }
        if read == 0 {
            return false;
        }
        let begun = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // A line longer than the buffer is not ours.
        kept = if filled - begun == buffer.len() { 0 } else { filled - begun };
        buffer.copy_within(begun..begun + kept, 0);
    }
}
