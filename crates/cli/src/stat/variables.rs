//! Where the variables of a program are declared, and which member of a variable an address is, by the debug
//! information (DWARF).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use gimli::{AttributeValue, EndianSlice, RunTimeEndian, UnitOffset};
use object::{Object as _, ObjectSection as _};

/// Debug information larger than this is not searched for variables: it would take longer than a reader waits.
const LARGEST: u64 = 64 << 20;

/// As many members within members are named.
const DEEPEST: usize = 8;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// A variable's declaration.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) file: String,
    pub(super) line: u32,
    layout: Layout,
}

/// As much of a type as it takes to name its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Layout {
    /// Has no parts, or none that are of interest: the insides of a lock are its own.
    Plain,
    /// Offset and size of each member.
    Struct(Vec<(u64, u64, String, Layout)>),
    /// Dimensions, size of an element.
    Array(Vec<u64>, u64, Box<Layout>),
}

impl Declared {
    /// The part of the variable at this offset, as it is written in C: `[3].lock`. None if it has no such part.
    pub(super) fn member(&self, offset: u64) -> Option<String> {
        let mut text = String::new();
        let rest = self.layout.part(offset, &mut text);
        // Not the beginning of a part: its name would be a guess.
        (rest == 0).then_some(text)
    }
}

impl Layout {
    /// Appends the part's name, and returns how far into it the offset is.
    fn part(&self, offset: u64, text: &mut String) -> u64 {
        match self {
            Layout::Plain => offset,
            Layout::Struct(members) => {
                // Of an empty member and the one that follows it at the same place, the latter is meant.
                let member =
                    members.iter().find(|(start, size, ..)| (*start..*start + *size).contains(&offset));
                let Some((start, _, name, layout)) = member else { return offset };
                // The members of an anonymous union or struct are named as if they were the outer one's.
                if !name.is_empty() {
                    text.push('.');
                    text.push_str(name);
                }
                layout.part(offset - start, text)
            }
            Layout::Array(dimensions, size, element) => {
                if *size == 0 {
                    return offset;
                }
                let mut index = offset / size;
                let mut indices = Vec::new();
                for dimension in dimensions.iter().rev() {
                    let dimension = (*dimension).max(1);
                    indices.push(index % dimension);
                    index /= dimension;
                }
                for index in indices.iter().rev() {
                    text.push_str(&format!("[{index}]"));
                }
                element.part(offset % size, text)
            }
        }
    }
}

/// The variables of static storage that the file's debug information declares, by their addresses in the file.
pub(super) fn read(path: &Path) -> Option<HashMap<u64, Declared>> {
    let data = object::ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&data).ok()?;
    let info = object.section_by_name(".debug_info")?;
    if info.size() > LARGEST {
        return None;
    }
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |id: gimli::SectionId| -> Result<Cow<[u8]>, object::Error> {
        object
            .section_by_name(id.name())
            .map_or(Ok(Cow::Borrowed(&[][..])), |section| section.uncompressed_data())
    };
    let sections = gimli::DwarfSections::load(load).ok()?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
    let mut declared = HashMap::new();
    let mut headers = dwarf.units();
    // What is damaged or of a newer version is passed over: the report is better without it than not there.
    while let Ok(Some(header)) = headers.next() {
        if let Ok(unit) = dwarf.unit(header) {
            let _ = read_unit(&Reader { dwarf: &dwarf, unit: &unit }, &mut declared);
        }
    }
    Some(declared)
}

struct Reader<'r, 'a> {
    dwarf: &'r gimli::Dwarf<Slice<'a>>,
    unit: &'r Unit<'a>,
}

fn read_unit(reader: &Reader, declared: &mut HashMap<u64, Declared>) -> gimli::Result<()> {
    let mut entries = reader.unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() != gimli::DW_TAG_variable {
            continue;
        }
        let Some(address) = reader.address(entry) else { continue };
        if let Some(variable) = reader.declaration(entry, 0) {
            declared.entry(address).or_insert(variable);
        }
    }
    Ok(())
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

    /// Where the variable is declared. A definition apart from its declaration refers to that.
    fn declaration(&self, entry: &Entry<'a>, depth: usize) -> Option<Declared> {
        let origin = || {
            let value = entry
                .attr_value(gimli::DW_AT_specification)
                .or_else(|| entry.attr_value(gimli::DW_AT_abstract_origin))?;
            let AttributeValue::UnitRef(offset) = value else { return None };
            if depth >= DEEPEST {
                return None;
            }
            self.declaration(&self.unit.entry(offset).ok()?, depth + 1)
        };
        let line = entry.attr_value(gimli::DW_AT_decl_line).and_then(|value| value.udata_value());
        let file = match entry.attr_value(gimli::DW_AT_decl_file) {
            Some(AttributeValue::FileIndex(index)) => Some(index),
            _ => None,
        };
        let layout =
            entry.attr_value(gimli::DW_AT_type).map(|of| self.layout(of, 0).unwrap_or(Layout::Plain));
        let here = || Some((self.file(file?)?, u32::try_from(line?).ok()?));
        match (here(), layout) {
            (Some((file, line)), Some(layout)) => Some(Declared { file, line, layout }),
            (place, layout) => {
                let origin = origin()?;
                let (file, line) = place.unwrap_or((origin.file, origin.line));
                Some(Declared { file, line, layout: layout.unwrap_or(origin.layout) })
            }
        }
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

    fn entry(&self, reference: AttributeValue<Slice<'a>>) -> Option<(UnitOffset, Entry<'a>)> {
        // A type in another unit (a type unit, or one shared by `dwz`) is left unnamed.
        let AttributeValue::UnitRef(offset) = reference else { return None };
        Some((offset, self.unit.entry(offset).ok()?))
    }

    fn layout(&self, of: AttributeValue<Slice<'a>>, depth: usize) -> Option<Layout> {
        if depth >= DEEPEST {
            return None;
        }
        let (offset, entry) = self.entry(of)?;
        match entry.tag() {
            gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                let name = self.name(&entry);
                // These are unions of an internal struct: whoever reads the report knows them by these names only.
                if name.as_deref().is_some_and(|name| name.starts_with("pthread_") || name == "mtx_t") {
                    return Some(Layout::Plain);
                }
                self.layout(entry.attr_value(gimli::DW_AT_type)?, depth + 1)
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                self.members(offset, depth).map(Layout::Struct)
            }
            gimli::DW_TAG_array_type => {
                let element = entry.attr_value(gimli::DW_AT_type)?;
                let size = self.size(element, depth + 1)?;
                let layout = self.layout(element, depth + 1).unwrap_or(Layout::Plain);
                Some(Layout::Array(self.dimensions(offset)?, size, Box::new(layout)))
            }
            _ => Some(Layout::Plain),
        }
    }

    fn members(&self, offset: UnitOffset, depth: usize) -> Option<Vec<(u64, u64, String, Layout)>> {
        let mut tree = self.unit.entries_tree(Some(offset)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut members = Vec::new();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if entry.tag() != gimli::DW_TAG_member && entry.tag() != gimli::DW_TAG_inheritance {
                continue;
            }
            let Some(of) = entry.attr_value(gimli::DW_AT_type) else { continue };
            // A union's members have no place; a static member has neither place nor extent in the object.
            if entry.attr(gimli::DW_AT_external).is_some() || entry.attr(gimli::DW_AT_declaration).is_some() {
                continue;
            }
            let start =
                entry.attr_value(gimli::DW_AT_data_member_location).and_then(|value| value.udata_value());
            let Some(size) = self.size(of, depth + 1) else { continue };
            // A base class is, like an anonymous struct, named by its members only.
            let name = if entry.tag() == gimli::DW_TAG_member { self.name(entry) } else { None };
            // Names like this are kept for the implementation: `std::mutex` is known by its own name, not by `_M_mutex`.
            if name.as_deref().is_some_and(|name| name.starts_with('_')) {
                members.push((start.unwrap_or(0), size, String::new(), Layout::Plain));
                continue;
            }
            let layout = self.layout(of, depth + 1).unwrap_or(Layout::Plain);
            members.push((start.unwrap_or(0), size, name.unwrap_or_default(), layout));
        }
        Some(members)
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

    fn size(&self, of: AttributeValue<Slice<'a>>, depth: usize) -> Option<u64> {
        if depth >= 2 * DEEPEST {
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

    fn name(&self, entry: &Entry<'a>) -> Option<String> {
        let value = entry.attr_value(gimli::DW_AT_name)?;
        Some(self.dwarf.attr_string(self.unit, value).ok()?.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Declared, Layout};

    #[test]
    fn members_are_named_as_in_c() {
        // struct { int id; struct { char pad[4]; pthread_mutex_t lock; } part[2][3]; } at 8, 44 bytes a part
        let pad = (0, 4, "pad".to_string(), Layout::Array(vec![4], 1, Box::new(Layout::Plain)));
        let lock = (4, 40, "lock".to_string(), Layout::Plain);
        let part = Layout::Array(vec![2, 3], 44, Box::new(Layout::Struct(vec![pad, lock])));
        let members = vec![(0, 4, "id".to_string(), Layout::Plain), (8, 264, "part".to_string(), part)];
        let variable = Declared { file: String::new(), line: 1, layout: Layout::Struct(members) };
        let member = |offset| variable.member(offset);
        assert_eq!(member(0).as_deref(), Some(".id"));
        assert_eq!(member(8 + 4).as_deref(), Some(".part[0][0].lock"));
        assert_eq!(member(8 + 44 * 5 + 4).as_deref(), Some(".part[1][2].lock"));
        assert_eq!(member(8 + 2).as_deref(), Some(".part[0][0].pad[2]"));
        assert_eq!(member(8 + 5), None, "the middle of a lock");
        assert_eq!(member(6), None, "padding");
    }
}
