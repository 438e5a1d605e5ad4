//! Which member of which struct a lock is, by what the function that takes it can get at.
//!
//! Debug information does not say where in a struct the lock is that a call is given: compilers keep its
//! address in a register of which they say nothing else. So nothing is said where there is more than one
//! possibility.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use gimli::{AttributeValue, DebugInfoOffset, UnitOffset};
use poundlock_statfile::LockKind;

use super::shorten::shorten;
use super::variables::{DEEPEST, Entry, Reader, Slice};
use super::words::is_lock_type;

/// Types beyond which nothing is looked for.
const TYPES: usize = 256;

/// Names of types that are locks.
const MUTEXES: [&str; 6] =
    ["pthread_mutex_t", "mtx_t", "mutex", "timed_mutex", "recursive_mutex", "recursive_timed_mutex"];
const RWLOCKS: [&str; 3] = ["pthread_rwlock_t", "shared_mutex", "shared_timed_mutex"];
const SPINLOCKS: [&str; 1] = ["pthread_spinlock_t"];
const CONDITIONS: [&str; 4] = ["pthread_cond_t", "cnd_t", "condition_variable", "condition_variable_any"];

/// Whether the name of a type is that of a lock of a kind, or of any.
fn is_lock(name: &str, kind: Option<LockKind>) -> bool {
    match kind {
        None => [&MUTEXES[..], &RWLOCKS, &SPINLOCKS, &CONDITIONS].iter().any(|names| names.contains(&name)),
        Some(LockKind::Spinlock) => SPINLOCKS.contains(&name),
        Some(LockKind::Condition) => CONDITIONS.contains(&name),
        Some(
            LockKind::RwReaders | LockKind::RwWriters | LockKind::SharedRwReaders | LockKind::SharedRwWriters,
        ) => RWLOCKS.contains(&name),
        Some(_) => MUTEXES.contains(&name),
    }
}

/// The structs that have locks, and the functions of a file.
#[derive(Default)]
pub(crate) struct Members {
    structs: HashMap<(DebugInfoOffset, UnitOffset), Struct>,
    functions: Vec<(Range<u64>, (DebugInfoOffset, UnitOffset))>,
}

/// A struct or class with locks.
struct Struct {
    /// With the namespaces and classes around it.
    name: String,
    /// The name of each lock, and its type's.
    locks: Vec<(String, String)>,
}

impl Members {
    /// Takes note of a member of a struct.
    pub(crate) fn member<'a>(
        &mut self,
        reader: &Reader<'_, 'a>,
        of: (DebugInfoOffset, UnitOffset),
        name: impl FnOnce() -> String,
        entry: &Entry<'a>,
    ) {
        if let (Some(member), Some(of_type)) = (reader.name(entry), lock_type(reader, entry)) {
            let known = self.structs.entry(of);
            let known = known.or_insert_with(|| Struct { name: name(), locks: Vec::new() });
            known.locks.push((member, of_type));
        }
    }

    /// Takes note of a name for a struct that has none of its own.
    pub(crate) fn named(&mut self, of: (DebugInfoOffset, UnitOffset), name: &str) {
        if let Some(known) = self.structs.get_mut(&of).filter(|known| known.name.is_empty()) {
            name.clone_into(&mut known.name);
        }
    }

    pub(crate) fn function(&mut self, range: Range<u64>, at: (DebugInfoOffset, UnitOffset)) {
        self.functions.push((range, at));
    }

    pub(crate) fn sort(&mut self) {
        self.functions.sort_by_key(|(range, ..)| range.start);
    }

    /// The function that this address is in: its unit, and its entry there.
    pub(crate) fn function_at(&self, at: u64) -> Option<(DebugInfoOffset, UnitOffset)> {
        let after = self.functions.partition_point(|(range, ..)| range.start <= at);
        let (range, function) = self.functions.get(after.checked_sub(1)?)?;
        range.contains(&at).then_some(*function)
    }

    /// The member that is a lock of a kind of the class of this name, if there is exactly one.
    pub(crate) fn only_lock_of(&self, class: &str, kind: LockKind) -> Option<&str> {
        // A header's class is in each unit that includes it. Compilers and demanglers differ in blanks.
        let said = |name: &str| shorten(name, usize::MAX, &[]);
        let class = said(class);
        let of = self.structs.values().filter(|known| said(&known.name) == class);
        only(of.flat_map(|known| known.names_of(kind)))
    }

    /// The same of a class in the debug information.
    pub(crate) fn lock_of(&self, class: (DebugInfoOffset, UnitOffset), kind: LockKind) -> Option<String> {
        let known = self.structs.get(&class)?;
        let name = only(known.names_of(kind))?;
        Some(format!("{}::{name}", known.name))
    }
}

impl Struct {
    fn names_of(&self, kind: LockKind) -> impl Iterator<Item = &str> {
        self.locks.iter().filter(move |(_, of)| is_lock(of, Some(kind))).map(|(name, _)| name.as_str())
    }
}

/// The name, if there is one only.
fn only<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    if let [name] = names[..] { Some(name) } else { None }
}

/// A function that takes a lock.
pub(crate) struct Taker<'m, 'r, 'a> {
    pub(crate) members: &'m Members,
    pub(crate) reader: &'r Reader<'r, 'a>,
    pub(crate) unit: DebugInfoOffset,
    pub(crate) function: UnitOffset,
    pub(crate) kind: LockKind,
}

impl<'a> Taker<'_, '_, 'a> {
    /// `struct::member`, if it is the only lock of its kind that the function's variables, those of its unit,
    /// and the results of functions lead to.
    pub(crate) fn only_lock(&self) -> Option<String> {
        let mut search = Search { taker: self, seen: HashSet::new(), found: BTreeSet::new() };
        let mut entries = self.reader.unit.entries_at_offset(self.function).ok()?;
        entries.next_dfs().ok()??;
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.depth() <= 0 {
                break;
            }
            let is_variable = matches!(entry.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter);
            if let Some(of) = self.type_of(entry, 0).filter(|_| is_variable) {
                // A lock that the function is given may be in anything. Inlined functions are given those of
                // others.
                let is_given = entry.depth() == 1 && entry.tag() == gimli::DW_TAG_formal_parameter;
                if is_given && self.is_to_lock(of) {
                    return None;
                }
                search.reach(of, 0);
            }
        }
        let mut tree = self.reader.unit.entries_tree(None).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            if matches!(child.entry().tag(), gimli::DW_TAG_variable | gimli::DW_TAG_subprogram)
                && let Some(of) = child.entry().attr_value(gimli::DW_AT_type)
            {
                search.reach(of, 0);
            }
        }
        let mut found = search.found.into_iter().filter(|_| search.seen.len() < TYPES);
        // A type that is made to be a lock is no sort of locks.
        found.next().filter(|name| found.next().is_none() && !name.starts_with("::"))
    }

    /// The type of a variable; one of an inlined function refers to that.
    fn type_of(&self, entry: &Entry<'a>, depth: usize) -> Option<AttributeValue<Slice<'a>>> {
        entry.attr_value(gimli::DW_AT_type).or_else(|| {
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin).filter(|_| depth < DEEPEST)?;
            self.type_of(&self.reader.entry(origin)?.1, depth + 1)
        })
    }

    /// Whether a type is a pointer or a reference to a lock of the kind.
    fn is_to_lock(&self, of: AttributeValue<Slice<'a>>) -> bool {
        let target = || {
            let (_, pointer) = self.plain(of).filter(|(_, entry)| is_pointer(entry))?;
            let (_, entry) = self.plain(pointer.attr_value(gimli::DW_AT_type)?)?;
            self.reader.name(&entry)
        };
        target().is_some_and(|name| is_lock(&name, Some(self.kind)))
    }

    /// Through names of types, and what does not change them.
    fn plain(&self, of: AttributeValue<Slice<'a>>) -> Option<(UnitOffset, Entry<'a>)> {
        let mut of = of;
        for _ in 0..DEEPEST {
            let (at, entry) = self.reader.entry(of)?;
            if !names_another(&entry) {
                return Some((at, entry));
            }
            of = entry.attr_value(gimli::DW_AT_type)?;
        }
        None
    }
}

/// The lock that a member is, by the name of its type. A lock may have another name in the program.
fn lock_type<'a>(reader: &Reader<'_, 'a>, member: &Entry<'a>) -> Option<String> {
    let mut of = member.attr_value(gimli::DW_AT_type)?;
    for _ in 0..DEEPEST {
        let (_, entry) = reader.entry(of)?;
        if let Some(name) = reader.name(&entry).filter(|name| is_lock(name, None)) {
            return Some(name);
        }
        of = entry.attr_value(gimli::DW_AT_type).filter(|_| names_another(&entry))?;
    }
    None
}

/// Whether a type is another one under a name, or with a qualifier.
pub(crate) fn names_another(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
    )
}

pub(crate) fn is_pointer(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
    )
}

/// All locks that can be got at from some types.
struct Search<'c, 'm, 'r, 'a> {
    taker: &'c Taker<'m, 'r, 'a>,
    seen: HashSet<UnitOffset>,
    found: BTreeSet<String>,
}

impl<'a> Search<'_, '_, '_, 'a> {
    fn reach(&mut self, of: AttributeValue<Slice<'a>>, depth: usize) {
        let Some((at, entry)) = self.taker.plain(of).filter(|_| depth < DEEPEST) else { return };
        if is_pointer(&entry) || entry.tag() == gimli::DW_TAG_array_type {
            if let Some(of) = entry.attr_value(gimli::DW_AT_type) {
                self.reach(of, depth + 1);
            }
            return;
        }
        let is_struct = matches!(
            entry.tag(),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
        );
        // What a lock is made of, a `std::mutex` of a pthread mutex, is no other lock.
        let is_one = || self.taker.reader.name(&entry).is_some_and(|name| is_lock(&name, None));
        if !is_struct || self.seen.len() >= TYPES || is_one() || !self.seen.insert(at) {
            return;
        }
        if let Some(known) = self.taker.members.structs.get(&(self.taker.unit, at)) {
            let fit = known.locks.iter().filter(|(_, of)| is_lock(of, Some(self.taker.kind)));
            // What is made to be a lock may be in anything.
            let name = if is_lock_type(&known.name) { "" } else { &known.name };
            self.found.extend(fit.map(|(member, _)| format!("{name}::{member}")));
        }
        let Ok(mut tree) = self.taker.reader.unit.entries_tree(Some(at)) else { return };
        let Ok(root) = tree.root() else { return };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            let is_part = matches!(child.entry().tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
            if let Some(of) = child.entry().attr_value(gimli::DW_AT_type).filter(|_| is_part) {
                self.reach(of, depth + 1);
            }
        }
    }
}
