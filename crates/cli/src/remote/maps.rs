//! What is mapped into another process, and where we find the files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use poundlock_statfile::{Module, Snapshot};

use crate::observe::proc::memory_of;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) executable: bool,
    pub(crate) writable: bool,
    /// Of the file; 0 if unknown.
    pub(crate) inode: u64,
    /// As the kernel has it; empty if it is of no file.
    pub(crate) path: String,
}

/// The mappings of a process, in the order of their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps(pub(crate) Vec<Mapping>);

impl Maps {
    /// The mapping that an address is in.
    pub(crate) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|mapping| mapping.start <= address);
        self.0[..after].last().filter(|mapping| address < mapping.end)
    }

    /// The mappings of files, as those describe them who look for names; `path` says where a file is found.
    pub(crate) fn modules(&self, mut path: impl FnMut(&Mapping) -> String) -> Vec<Module> {
        let named = self.0.iter().filter(|mapping| mapping.path.starts_with('/'));
        let module = |mapping: &Mapping| Module {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            path: path(mapping),
        };
        named.map(module).collect()
    }

    /// Whether there may be code.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.at(address).is_some_and(|mapping| mapping.executable)
    }

    /// From the text of `/proc/PID/maps`.
    pub(crate) fn parse(text: &str) -> Maps {
        let mapping = |line: &str| {
            let mut rest = line;
            let mut word = || {
                let trimmed = rest.trim_start();
                let end = trimmed.find(' ').unwrap_or(trimmed.len());
                let word = &trimmed[..end];
                rest = &trimmed[end..];
                word
            };
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let (start, end) = word().split_once('-')?;
            let (start, end) = (number(start)?, number(end)?);
            let rights = word();
            let (executable, writable) = (rights.contains('x'), rights.contains('w'));
            let offset = number(word())?;
            let _device = word();
            let inode = word().parse().unwrap_or(0);
            // The kernel writes a newline in a name as four characters.
            let path = rest.trim_start().replace("\\012", "\n");
            Some(Mapping { start, end, offset, executable, writable, inode, path })
        };
        Maps(text.lines().filter_map(mapping).collect())
    }
}

/// Where the files are that a live process has mapped: it may have another root, and files may have been
/// replaced since.
#[derive(Debug)]
pub(crate) struct Files {
    pid: u32,
    /// `/proc/PID/root`, if that is not our own root.
    root: Option<PathBuf>,
    /// Links by their old names to files that have no name any more.
    links: Option<tempfile::TempDir>,
    exe: String,
}

impl Files {
    pub(crate) fn of(pid: u32) -> Files {
        let place = |path: &str| {
            let root = std::fs::metadata(format!("{path}/root/")).ok();
            let namespace = std::fs::read_link(format!("{path}/ns/mnt")).ok();
            (root.map(|root| (root.dev(), root.ino())), namespace)
        };
        let pid = memory_of(pid);
        let theirs = format!("/proc/{pid}");
        let other = place(&theirs) != place("/proc/self");
        let exe = std::fs::read_link(format!("{theirs}/exe"));
        Files {
            pid,
            root: other.then(|| PathBuf::from(format!("{theirs}/root"))),
            links: None,
            exe: exe.map(|exe| exe.to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }

    /// The path by which we find the file of a mapping.
    pub(crate) fn find(&mut self, mapping: &Mapping) -> String {
        const GONE: &str = " (deleted)";
        if let Some(name) = mapping.path.strip_suffix(GONE) {
            return self.link(mapping, name).unwrap_or_else(|| mapping.path.clone());
        }
        // Under its root; or where the kernel shows us files that are in no directory of ours, by the names
        // that they have there; or without a name.
        let there = self.root.as_ref().map(|root| format!("{}{}", root.display(), mapping.path));
        let Some(there) = there else { return mapping.path.clone() };
        let inode =
            |path: &str| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|f| f.ino());
        let places = [there, mapping.path.clone()];
        let same = places.iter().find(|path| inode(path) == Some(mapping.inode));
        if let Some(found) = same.or_else(|| places.iter().find(|path| inode(path).is_some())) {
            return found.clone();
        }
        self.link(mapping, &mapping.path).unwrap_or_else(|| mapping.path.clone())
    }

    fn link(&mut self, mapping: &Mapping, name: &str) -> Option<String> {
        let proc = PathBuf::from(format!("/proc/{}", self.pid));
        // The kernel opens what is mapped for some, and the program's own file for all that may look.
        let mapped = proc.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
        let is_file = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.is_file());
        let exe = proc.join("exe");
        let target = if self.exe == mapping.path && is_file(&exe) {
            exe
        } else {
            Some(mapped).filter(|mapped| is_file(mapped))?
        };
        let dir = match &self.links {
            Some(dir) => dir,
            None => self.links.insert(tempfile::tempdir().ok()?),
        };
        let link = dir.path().join(Path::new(name).file_name()?);
        if !link.exists() {
            std::os::unix::fs::symlink(target, &link).ok()?;
        }
        Some(link.to_string_lossy().into_owned())
    }

    /// The process as those describe it who look for names.
    pub(crate) fn describe(&mut self, maps: &Maps) -> Snapshot {
        let modules = maps.modules(|mapping| self.find(mapping));
        let of_exe = maps.0.iter().find(|mapping| mapping.path == self.exe).cloned();
        let exe = match of_exe {
            Some(mapping) => self.find(&mapping),
            None => self.exe.clone(),
        };
        Snapshot { pid: self.pid, exe, modules, ..Snapshot::default() }
    }

    /// Where we find the statistics files that the process writes to. A child may have its parent's, too.
    pub(crate) fn statistics(&mut self, maps: &Maps) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for mapping in maps.0.iter().filter(|mapping| mapping.writable) {
            let name = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
            if name.ends_with(".stat") && mapping.path.starts_with('/') {
                let path = PathBuf::from(self.find(mapping));
                if !found.contains(&path) {
                    found.push(path);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let maps = Maps::parse(
            "55e0-55f0 r-xp 00001000 08:01 42    /srv/a b (deleted)\n\
             7ff0-7ff8 rw-p 00000000 00:00 0 \n\
             7ff8-7fff rw-p 00000000 00:00 0     [stack]\n",
        );
        assert_eq!(maps.0.len(), 3);
        let first = maps.at(0x55ef).expect("it is mapped");
        assert_eq!((&*first.path, first.offset, first.executable), ("/srv/a b (deleted)", 0x1000, true));
        assert!(maps.at(0x55f0).is_none() && maps.at(0x7ff7).is_some_and(|mapping| mapping.path.is_empty()));
        assert!(maps.is_code(0x55e0) && !maps.is_code(0x7ff8));
    }
}
