//! ELF files of this sort of machine. Read as needed rather than mapped, but for their tables of symbols:
//! programs of hundreds of megabytes exist, and little of them is wanted.

use std::fs::File;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, ReadCache, ReadRef};

/// What has been read of a file.
pub(crate) type Data = ReadCache<File>;
/// A file. Of one sort: the parser of every format that there is would be built for each question that is asked.
pub(crate) type Elf<'data, R = &'data Data> = ElfFile64<'data, Endianness, R>;

/// Opens a file, which [`parse`] looks into.
pub(crate) fn open(path: &Path) -> Option<Data> {
    Some(ReadCache::new(File::open(path).ok()?))
}

/// The file, if it is one of 64 bits.
pub(crate) fn parse<'data, R: ReadRef<'data>>(data: R) -> Option<Elf<'data, R>> {
    Elf::parse(data).ok()
}
