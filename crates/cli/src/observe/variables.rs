//! Where the variables of a program are declared, and which member of a variable an address is, by the debug
//! information (DWARF).

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, EndianSlice, RunTimeEndian, SectionId, UnitOffset};
use object::{Object as _, ObjectSection as _};
use poundlock_statfile::LockKind;

use super::members::{Members, Taker};
use super::scopes::Around;
pub(crate) use super::scopes::Scope;
use crate::elf_file;

/// Debug information larger than this is not searched for variables: it would take longer than a reader
/// waits.
const LARGEST: u64 = 64 << 20;

/// Types and declarations refer to others; in damaged debug information perhaps in a circle. No sound chain
/// is longer.
pub(crate) const DEEPEST: usize = 16;

pub(crate) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
pub(crate) type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// By address: a unit, and an entry in it.
type Places = HashMap<u64, (DebugInfoOffset, UnitOffset)>;

/// A variable's declaration.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) file: String,
    pub(crate) line: u32,
    /// The part of the variable that was asked about, as it is written in C: `[3].lock`. None if it has no
    /// such part.
    pub(crate) member: Option<String>,
}

/// The variables of static storage that a file's debug information describes.
pub(crate) struct Variables {
    sections: gimli::DwarfSections<Vec<u8>>,
    endian: RunTimeEndian,
    /// Where each is described: the unit, and the entry in it. By the variable's address in the file.
    entries: Places,
    pub(super) members: Members,
    /// By unit, once they were asked for.
    pub(super) arounds: RefCell<HashMap<DebugInfoOffset, Rc<Around>>>,
}

impl Variables {
    /// Finds them, if the file has debug information at all.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let data = elf_file::open(path)?;
        let object = elf_file::parse(&data)?;
        if object.section_by_name(".debug_info")?.size() > LARGEST {
            return None;
        }
        let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let load = |id: SectionId| -> Result<Vec<u8>, object::Error> {
            // Large ones that say nothing about variables are left where they are.
            if matches!(id, SectionId::DebugLoc | SectionId::DebugLocLists | SectionId::DebugAranges) {
                return Ok(Vec::new());
            }
            let section = object.section_by_name(id.name());
            section.map_or(Ok(Vec::new()), |section| Ok(section.uncompressed_data()?.into_owned()))
        };
        let sections = gimli::DwarfSections::load(load).ok()?;
        let (entries, members) = (HashMap::new(), Members::default());
        let arounds = RefCell::default();
        let mut variables = Variables { sections, endian, entries, members, arounds };
        (variables.entries, variables.members) = variables.find();
        Some(variables)
    }

    pub(super) fn dwarf(&self) -> gimli::Dwarf<Slice<'_>> {
        self.sections.borrow(|section| EndianSlice::new(section, self.endian))
    }

    fn find(&self) -> (Places, Members) {
        let dwarf = self.dwarf();
        let mut found = HashMap::new();
        let mut members = Members::default();
        let mut headers = dwarf.units();
        // What is damaged or of a newer version is passed over: the report is better without it than not
        // there.
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset() else { continue };
            let Ok(unit) = dwarf.unit(header) else { continue };
            let reader = Reader { dwarf: &dwarf, unit: &unit };
            let mut entries = unit.entries();
            // The names of the namespaces and classes around, each with its depth and entry.
            let mut scopes: Vec<(isize, UnitOffset, String)> = Vec::new();
            let mut names: Vec<(UnitOffset, String)> = Vec::new();
            while let Ok(Some(entry)) = entries.next_dfs() {
                scopes.retain(|(depth, ..)| *depth < entry.depth());
                match entry.tag() {
                    gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type => {
                        scopes.push((entry.depth(), entry.offset(), reader.name(entry).unwrap_or_default()));
                    }
                    gimli::DW_TAG_member => {
                        let Some(&(_, of, _)) = scopes.last() else { continue };
                        let whole = || {
                            let names = scopes.iter().map(|(.., name)| name.as_str());
                            names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join("::")
                        };
                        members.member(&reader, (offset, of), whole, entry);
                    }
                    gimli::DW_TAG_typedef => {
                        if let (Some(AttributeValue::UnitRef(of)), Some(name)) =
                            (entry.attr_value(gimli::DW_AT_type), reader.name(entry))
                        {
                            names.push((of, name));
                        }
                    }
                    gimli::DW_TAG_subprogram => {
                        if let Ok(mut ranges) = dwarf.die_ranges(&unit, entry) {
                            while let Ok(Some(range)) = ranges.next() {
                                members.function(range.begin..range.end, (offset, entry.offset()));
                            }
                        }
                    }
                    gimli::DW_TAG_variable => {
                        if let Some(address) = reader.address(entry) {
                            found.entry(address).or_insert((offset, entry.offset()));
                        }
                    }
                    _ => {}
                }
            }
            for (of, name) in names {
                members.named((offset, of), &name);
            }
        }
        members.sort();
        (found, members)
    }

    /// The member of this class that is a lock of a kind, if there is exactly one.
    pub(crate) fn lock_of(&self, class: &str, kind: LockKind) -> Option<&str> {
        self.members.only_lock_of(class, kind)
    }

    /// The member that is locked by the function that this address is in, as `struct::member`, if there is
    /// one possibility only.
    pub(crate) fn locked_in(&self, at: u64, kind: LockKind) -> Option<String> {
        let (unit, function) = self.members.function_at(at)?;
        let dwarf = self.dwarf();
        let of_unit = dwarf.unit(dwarf.debug_info.header_from_offset(unit).ok()?).ok()?;
        let reader = Reader { dwarf: &dwarf, unit: &of_unit };
        Taker { members: &self.members, reader: &reader, unit, function, kind }.only_lock()
    }

    /// The size of what the variable at `address` has many of, if it is an array; else its own.
    pub(crate) fn element_size(&self, address: u64) -> Option<u64> {
        let (unit, entry) = *self.entries.get(&address)?;
        let dwarf = self.dwarf();
        let unit = dwarf.unit(dwarf.debug_info.header_from_offset(unit).ok()?).ok()?;
        let reader = Reader { dwarf: &dwarf, unit: &unit };
        let (.., of) = reader.declaration(&unit.entry(entry).ok()?, 0)?;
        reader.element_size(of?, 0)
    }

    /// What is declared for the variable at `address`, and which part of it is `offset` further on.
    pub(crate) fn declared(&self, address: u64, offset: u64) -> Option<Declared> {
        let (unit, entry) = *self.entries.get(&address)?;
        let dwarf = self.dwarf();
        let unit = dwarf.unit(dwarf.debug_info.header_from_offset(unit).ok()?).ok()?;
        let reader = Reader { dwarf: &dwarf, unit: &unit };
        let (file, line, of) = reader.declaration(&unit.entry(entry).ok()?, 0)?;
        let mut member = String::new();
        // In the middle of a part, its name would be a guess.
        let rest = of.map_or(offset, |of| reader.part(of, offset, &mut member, 0).unwrap_or(offset));
        Some(Declared { file, line, member: (rest == 0).then_some(member) })
    }
}

pub(crate) struct Reader<'r, 'a> {
    pub(crate) dwarf: &'r gimli::Dwarf<Slice<'a>>,
    pub(crate) unit: &'r Unit<'a>,
}

impl<'a> Reader<'_, 'a> {
    /// The address of a variable that has a fixed one.
    fn address(&self, entry: &Entry<'a>) -> Option<u64> {
        let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_location)? else {
            return None;
        };
        let mut operations = expression.operations(self.unit.encoding());
        let address = match operations.next().ok()?? {
            gimli::Operation::Address { address } => address,
            gimli::Operation::AddressIndex { index } => self.dwarf.address(self.unit, index).ok()?,
            _ => return None,
        };
        // More operations would make something else of it, such as an offset in thread-local storage.
        operations.next().ok()?.is_none().then_some(address)
    }

    /// Where the variable is declared, and its type. A definition apart from its declaration refers to that.
    fn declaration(
        &self,
        entry: &Entry<'a>,
        depth: usize,
    ) -> Option<(String, u32, Option<AttributeValue<Slice<'a>>>)> {
        let of = entry.attr_value(gimli::DW_AT_type);
        let here = self.place(entry);
        if let (Some((file, line)), Some(of)) = (&here, of) {
            return Some((file.clone(), *line, Some(of)));
        }
        let origin = || {
            let value = entry
                .attr_value(gimli::DW_AT_specification)
                .or_else(|| entry.attr_value(gimli::DW_AT_abstract_origin))?;
            let (_, origin) = self.entry(value)?;
            if depth < DEEPEST { self.declaration(&origin, depth + 1) } else { None }
        };
        match (here, origin()) {
            (Some((file, line)), Some((.., of))) => Some((file, line, of)),
            (Some((file, line)), None) => Some((file, line, of)),
            (None, origin) => origin,
        }
    }

    /// The file and the line at which an entry is declared.
    pub(crate) fn place(&self, entry: &Entry<'a>) -> Option<(String, u32)> {
        let Some(AttributeValue::FileIndex(index)) = entry.attr_value(gimli::DW_AT_decl_file) else {
            return None;
        };
        let line = entry.attr_value(gimli::DW_AT_decl_line)?.udata_value()?;
        Some((self.file(index)?, u32::try_from(line).ok()?))
    }

    fn file(&self, index: u64) -> Option<String> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value| {
            self.dwarf.attr_string(self.unit, value).ok().map(|text| text.to_string_lossy().into_owned())
        };
        let mut path = String::new();
        // The last one is given first; an absolute one makes those before it void.
        let dir = self.unit.comp_dir.map(|dir| dir.to_string_lossy().into_owned());
        let file_dir = (file.directory_index() != 0).then(|| file.directory(header).and_then(text)).flatten();
        for part in [dir, file_dir, text(file.path_name())].into_iter().flatten() {
            if part.starts_with('/') {
                path.clear();
            }
            if !(path.is_empty() || path.ends_with('/')) {
                path.push('/');
            }
            path.push_str(&part);
        }
        Some(path)
    }

    pub(crate) fn entry(&self, reference: AttributeValue<Slice<'a>>) -> Option<(UnitOffset, Entry<'a>)> {
        // A type in another unit (a type unit, or one shared by `dwz`) is left unnamed.
        let AttributeValue::UnitRef(offset) = reference else { return None };
        Some((offset, self.unit.entry(offset).ok()?))
    }

    /// Appends the name of the part of a type that an offset is in, and returns how far into that it is.
    fn part(
        &self,
        of: AttributeValue<Slice<'a>>,
        offset: u64,
        text: &mut String,
        depth: usize,
    ) -> Option<u64> {
        let (at, entry) = self.entry(of).filter(|_| depth < DEEPEST)?;
        match entry.tag() {
            gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                // These are unions of an internal struct: whoever reads the report knows them by these names
                // only.
                let name = self.name(&entry).unwrap_or_default();
                if name.starts_with("pthread_") || name == "mtx_t" {
                    return Some(offset);
                }
                self.part(entry.attr_value(gimli::DW_AT_type)?, offset, text, depth + 1)
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let Some((start, name, of)) = self.member(at, offset) else { return Some(offset) };
                let offset = offset - start;
                match name {
                    // Names like this are kept for the implementation: `std::mutex` is known by its own name,
                    // not by its `_M_mutex`.
                    Some(name) if name.starts_with('_') => return Some(offset),
                    Some(name) => {
                        text.push('.');
                        text.push_str(&name);
                    }
                    // The members of an anonymous struct, or of a base class, are named as if they were the
                    // outer one's.
                    None => {}
                }
                Some(self.part(of, offset, text, depth + 1).unwrap_or(offset))
            }
            gimli::DW_TAG_array_type => {
                let element = entry.attr_value(gimli::DW_AT_type)?;
                let size = self.size(element, 0).filter(|&size| size > 0)?;
                let mut index = offset / size;
                let mut indices = Vec::new();
                for dimension in self.dimensions(at)?.into_iter().rev() {
                    indices.push(index % dimension.max(1));
                    index /= dimension.max(1);
                }
                for index in indices.iter().rev() {
                    text.push_str(&format!("[{index}]"));
                }
                Some(self.part(element, offset % size, text, depth + 1).unwrap_or(offset % size))
            }
            _ => Some(offset),
        }
    }

    /// The member of a struct that an offset is in: where it starts, its name and its type.
    fn member(
        &self,
        at: UnitOffset,
        offset: u64,
    ) -> Option<(u64, Option<String>, AttributeValue<Slice<'a>>)> {
        let mut tree = self.unit.entries_tree(Some(at)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            let is_base = entry.tag() == gimli::DW_TAG_inheritance;
            // A static member is no part of the object.
            let is_elsewhere =
                entry.attr(gimli::DW_AT_external).is_some() || entry.attr(gimli::DW_AT_declaration).is_some();
            if !(is_base || entry.tag() == gimli::DW_TAG_member) || is_elsewhere {
                continue;
            }
            let Some(of) = entry.attr_value(gimli::DW_AT_type) else { continue };
            // A union's members have no place: they are all at its beginning.
            let start =
                entry.attr_value(gimli::DW_AT_data_member_location).and_then(|value| value.udata_value());
            let start = start.unwrap_or(0);
            let Some(size) = self.size(of, 0) else { continue };
            // Of an empty member and the one that follows it at the same place, the latter is meant.
            if (start..start.saturating_add(size)).contains(&offset) {
                return Some((start, if is_base { None } else { self.name(entry) }, of));
            }
        }
        None
    }

    fn dimensions(&self, offset: UnitOffset) -> Option<Vec<u64>> {
        let mut tree = self.unit.entries_tree(Some(offset)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut dimensions = Vec::new();
        while let Ok(Some(child)) = children.next() {
            let number = |name| child.entry().attr_value(name).and_then(|value| value.udata_value());
            if child.entry().tag() == gimli::DW_TAG_subrange_type {
                let count =
                    number(gimli::DW_AT_count).or_else(|| Some(number(gimli::DW_AT_upper_bound)? + 1));
                dimensions.push(count?);
            }
        }
        Some(dimensions)
    }

    fn element_size(&self, of: AttributeValue<Slice<'a>>, depth: usize) -> Option<u64> {
        let (_, entry) = self.entry(of).filter(|_| depth < DEEPEST)?;
        match entry.tag() {
            gimli::DW_TAG_array_type => self.element_size(entry.attr_value(gimli::DW_AT_type)?, depth + 1),
            gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                self.element_size(entry.attr_value(gimli::DW_AT_type)?, depth + 1)
            }
            _ => self.size(of, 0),
        }
    }

    fn size(&self, of: AttributeValue<Slice<'a>>, depth: usize) -> Option<u64> {
        if depth >= DEEPEST {
            return None;
        }
        let (offset, entry) = self.entry(of)?;
        if let Some(size) = entry.attr_value(gimli::DW_AT_byte_size) {
            return size.udata_value();
        }
        match entry.tag() {
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type => {
                Some(u64::from(self.unit.encoding().address_size))
            }
            gimli::DW_TAG_array_type => {
                let element = self.size(entry.attr_value(gimli::DW_AT_type)?, depth + 1)?;
                self.dimensions(offset)?.iter().try_fold(element, |size, n| size.checked_mul(*n))
            }
            _ => self.size(entry.attr_value(gimli::DW_AT_type)?, depth + 1),
        }
    }

    pub(crate) fn name(&self, entry: &Entry<'a>) -> Option<String> {
        let value = entry.attr_value(gimli::DW_AT_name)?;
        Some(self.dwarf.attr_string(self.unit, value).ok()?.to_string_lossy().into_owned())
    }
}
