//! Which member of which struct a lock is, by the debug information at the call that takes it.
//!
//! Compilers that optimise say what the first argument of a call is: what a register of the caller has, or
//! had when its function began, and how much more. A variable of the caller that is in the same register
//! points to the struct that the lock is in. Without that, the types tell if there is one possibility only.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use gimli::{AttributeValue, DebugInfoOffset, Expression, Operation, Register, UnitOffset};
use poundlock_statfile::LockKind;

use super::names::is_lock_type;
use super::variables::{DEEPEST, Entry, Reader, Slice};

/// Types beyond which nothing is looked for.
const TYPES: usize = 256;

/// Names of types that are locks.
const MUTEXES: [&str; 6] =
    ["pthread_mutex_t", "mtx_t", "mutex", "timed_mutex", "recursive_mutex", "recursive_timed_mutex"];
const RWLOCKS: [&str; 3] = ["pthread_rwlock_t", "shared_mutex", "shared_timed_mutex"];
const SPINLOCKS: [&str; 1] = ["pthread_spinlock_t"];

/// Whether the name of a type is that of a lock of a kind, or of any.
fn is_lock(name: &str, kind: Option<LockKind>) -> bool {
    match kind {
        None => [&MUTEXES[..], &RWLOCKS, &SPINLOCKS].iter().any(|names| names.contains(&name)),
        Some(LockKind::Spinlock) => SPINLOCKS.contains(&name),
        Some(
            LockKind::RwReaders | LockKind::RwWriters | LockKind::SharedRwReaders | LockKind::SharedRwWriters,
        ) => RWLOCKS.contains(&name),
        Some(_) => MUTEXES.contains(&name),
    }
}

/// The structs that have locks, and the functions of a file.
#[derive(Default)]
pub(super) struct Members {
    structs: HashMap<(DebugInfoOffset, UnitOffset), Struct>,
    functions: Vec<(Range<u64>, (DebugInfoOffset, UnitOffset))>,
}

/// A struct or class with locks.
struct Struct {
    /// With the namespaces and classes around it.
    name: String,
    /// Where each lock is, its name, and its type's.
    locks: Vec<(u64, String, String)>,
}

impl Members {
    /// Takes note of a member of a struct.
    pub(super) fn member<'a>(
        &mut self,
        reader: &Reader<'_, 'a>,
        of: (DebugInfoOffset, UnitOffset),
        name: impl FnOnce() -> String,
        entry: &Entry<'a>,
    ) {
        let of_type = || reader.name(&reader.entry(entry.attr_value(gimli::DW_AT_type)?)?.1);
        if let (Some(member), Some(of_type)) = (reader.name(entry), of_type())
            && is_lock(&of_type, None)
        {
            let known = self.structs.entry(of);
            let known = known.or_insert_with(|| Struct { name: name(), locks: Vec::new() });
            known.locks.push((start(entry), member, of_type));
        }
    }

    /// Takes note of a name for a struct that has none of its own.
    pub(super) fn named(&mut self, of: (DebugInfoOffset, UnitOffset), name: &str) {
        if let Some(known) = self.structs.get_mut(&of).filter(|known| known.name.is_empty()) {
            name.clone_into(&mut known.name);
        }
    }

    pub(super) fn function(&mut self, range: Range<u64>, at: (DebugInfoOffset, UnitOffset)) {
        self.functions.push((range, at));
    }

    pub(super) fn sort(&mut self) {
        self.functions.sort_by_key(|(range, ..)| range.start);
    }

    /// The function that this address is in: its unit, and its entry there.
    pub(super) fn function_at(&self, at: u64) -> Option<(DebugInfoOffset, UnitOffset)> {
        let after = self.functions.partition_point(|(range, ..)| range.start <= at);
        let (range, function) = self.functions.get(after.checked_sub(1)?)?;
        range.contains(&at).then_some(*function)
    }

    /// The member that is a lock of the class of this name, if there is exactly one.
    pub(super) fn only_lock_of(&self, class: &str) -> Option<&str> {
        // A header's class is in each unit that includes it.
        let of = self.structs.values().filter(|known| known.name == class).flat_map(|known| &known.locks);
        let mut names: Vec<&str> = of.map(|(_, name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if let [name] = names[..] { Some(name) } else { None }
    }
}

/// Where a member is in its struct.
fn start(entry: &Entry<'_>) -> u64 {
    // A union's members have no place: they are all at its beginning.
    entry.attr_value(gimli::DW_AT_data_member_location).and_then(|value| value.udata_value()).unwrap_or(0)
}

/// What a value is, as far as it can be compared: what a register has, or had when the function began, and
/// more.
#[derive(Clone, Copy, PartialEq)]
enum Base {
    Has(Register),
    Had(Register),
}

/// A variable of a function.
struct Local<'a> {
    of: AttributeValue<Slice<'a>>,
    value: Option<(Base, i64)>,
}

/// A call that takes a lock.
pub(super) struct Call<'m, 'r, 'a> {
    pub(super) members: &'m Members,
    pub(super) reader: &'r Reader<'r, 'a>,
    pub(super) unit: DebugInfoOffset,
    pub(super) function: UnitOffset,
    /// The address that it returns to.
    pub(super) returns_to: u64,
    /// The register of the first argument.
    pub(super) argument: Register,
    pub(super) kind: LockKind,
}

impl<'a> Call<'_, '_, 'a> {
    /// `struct::member`, if it is known. `by_types`: if the variables do not tell, what the types allow.
    pub(super) fn member(&self, by_types: bool) -> Option<String> {
        let (locals, argument, is_described) = self.locals()?;
        if is_described {
            let (base, offset) = argument?;
            let of = locals.iter().filter_map(|local| {
                let (_, before) = local.value.filter(|(other, _)| *other == base)?;
                let offset = u64::try_from(offset.checked_sub(before)?).ok()?;
                self.lock_at(self.pointee(local.of.clone())?, offset, None, 0)
            });
            return only(of.collect());
        }
        if !by_types {
            return None;
        }
        let mut search = Search { call: self, seen: HashSet::new(), found: BTreeSet::new() };
        for local in locals {
            search.reach(local.of, 0);
        }
        let mut tree = self.reader.unit.entries_tree(None).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            // What a global variable points to, or a function returns, may be what is locked as well.
            if matches!(child.entry().tag(), gimli::DW_TAG_variable | gimli::DW_TAG_subprogram)
                && let Some(of) = child.entry().attr_value(gimli::DW_AT_type)
            {
                search.reach(of, 0);
            }
        }
        let found = if search.seen.len() < TYPES { only(search.found) } else { None };
        found.filter(|name| !name.starts_with("::"))
    }

    /// The variables of the function, what the first argument of the call is, and whether the call is
    /// described at all.
    fn locals(&self) -> Option<(Vec<Local<'a>>, Option<(Base, i64)>, bool)> {
        let mut entries = self.reader.unit.entries_at_offset(self.function).ok()?;
        entries.next_dfs().ok()??;
        let (mut locals, mut argument, mut is_described) = (Vec::new(), None, false);
        // The depth of the call's entry, while its parameters follow.
        let mut call = None;
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.depth() <= 0 {
                break;
            }
            call = call.filter(|depth| entry.depth() > *depth);
            match entry.tag() {
                gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site => {
                    let pc = [gimli::DW_AT_call_return_pc, gimli::DW_AT_low_pc];
                    let pc = pc.iter().find_map(|name| entry.attr_value(*name));
                    let pc = pc.and_then(|pc| self.reader.dwarf.attr_address(self.reader.unit, pc).ok()?);
                    if pc == Some(self.returns_to) {
                        (call, is_described) = (Some(entry.depth()), true);
                    }
                }
                gimli::DW_TAG_call_site_parameter | gimli::DW_TAG_GNU_call_site_parameter => {
                    let place = entry.attr_value(gimli::DW_AT_location).and_then(|at| at.exprloc_value());
                    let place = place.and_then(|place| self.value(place, true));
                    if call.is_some() && place == Some((Base::Has(self.argument), 0)) {
                        let value = [gimli::DW_AT_call_value, gimli::DW_AT_GNU_call_site_value];
                        let value = value.iter().find_map(|name| entry.attr_value(*name)?.exprloc_value());
                        argument = value.and_then(|value| self.value(value, false));
                    }
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                    if let Some(of) = self.type_of(entry, 0) {
                        locals.push(Local { of, value: self.variable(entry) });
                    }
                }
                _ => {}
            }
        }
        Some((locals, argument, is_described))
    }

    /// The type of a variable; one of an inlined function refers to that.
    fn type_of(&self, entry: &Entry<'a>, depth: usize) -> Option<AttributeValue<Slice<'a>>> {
        entry.attr_value(gimli::DW_AT_type).or_else(|| {
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin).filter(|_| depth < DEEPEST)?;
            self.type_of(&self.reader.entry(origin)?.1, depth + 1)
        })
    }

    /// What a variable is during the call.
    fn variable(&self, entry: &Entry<'a>) -> Option<(Base, i64)> {
        let location = entry.attr_value(gimli::DW_AT_location)?;
        if let Some(expression) = location.exprloc_value() {
            return self.value(expression, true);
        }
        let at = self.returns_to - 1;
        let mut list = self.reader.dwarf.attr_locations(self.reader.unit, location).ok()??;
        while let Ok(Some(entry)) = list.next() {
            if (entry.range.begin..entry.range.end).contains(&at) {
                return self.value(entry.data, true);
            }
        }
        None
    }

    /// What an expression says, which may be that of a place.
    fn value(&self, expression: Expression<Slice<'a>>, is_place: bool) -> Option<(Base, i64)> {
        let mut operations = expression.operations(self.reader.unit.encoding());
        let (mut base, mut offset, mut is_value) = (None, 0i64, !is_place);
        while let Some(operation) = operations.next().ok()? {
            match operation {
                Operation::Register { register } => (base, is_value) = (Some(Base::Has(register)), true),
                Operation::RegisterOffset { register, offset: more, .. } if base.is_none() => {
                    (base, offset) = (Some(Base::Has(register)), more);
                }
                Operation::EntryValue { expression } if base.is_none() => {
                    let (Base::Has(register), 0) = self.value(Expression(expression), true)? else {
                        return None;
                    };
                    base = Some(Base::Had(register));
                }
                Operation::PlusConstant { value } => {
                    offset = offset.checked_add(i64::try_from(value).ok()?)?
                }
                Operation::StackValue => is_value = true,
                _ => return None,
            }
        }
        base.filter(|_| is_value).map(|base| (base, offset))
    }

    /// Through names of types, and what does not change them.
    fn plain(&self, of: AttributeValue<Slice<'a>>) -> Option<(UnitOffset, Entry<'a>)> {
        let mut of = of;
        for _ in 0..DEEPEST {
            let (at, entry) = self.reader.entry(of)?;
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type => of = entry.attr_value(gimli::DW_AT_type)?,
                _ => return Some((at, entry)),
            }
        }
        None
    }

    /// What a pointer or a reference points to.
    fn pointee(&self, of: AttributeValue<Slice<'a>>) -> Option<AttributeValue<Slice<'a>>> {
        let (_, entry) = self.plain(of)?;
        let points = is_pointer(&entry);
        if points { entry.attr_value(gimli::DW_AT_type) } else { None }
    }

    /// The lock at this place in a type: in the innermost struct that is not made to be a lock. `around` is
    /// the struct around one that is.
    fn lock_at(
        &self,
        of: AttributeValue<Slice<'a>>,
        offset: u64,
        around: Option<String>,
        depth: usize,
    ) -> Option<String> {
        let (at, entry) = self.plain(of).filter(|_| depth < DEEPEST)?;
        if entry.tag() == gimli::DW_TAG_array_type {
            let element = entry.attr_value(gimli::DW_AT_type)?;
            let size = self.reader.size(element.clone(), 0).filter(|&size| size > 0)?;
            return self.lock_at(element, offset % size, around, depth + 1);
        }
        let known = self.members.structs.get(&(self.unit, at));
        let own = known.map(|known| known.name.clone()).filter(|name| !name.is_empty());
        let own = own.or_else(|| self.reader.name(&entry)).unwrap_or_default();
        let is_lock_itself = is_lock_type(&own);
        if let Some(known) = known
            && let Some((_, member, of_type)) = known.locks.iter().find(|(start, ..)| *start == offset)
        {
            let fits = is_lock(of_type, Some(self.kind));
            let named = !own.is_empty() && !is_lock_itself;
            let name = if named { Some(format!("{own}::{member}")) } else { around };
            return name.filter(|_| fits);
        }
        let (start, member, of) = self.reader.member(at, offset)?;
        let around = match member {
            Some(member) if !own.is_empty() && !is_lock_itself => Some(format!("{own}::{member}")),
            _ => around,
        };
        self.lock_at(of, offset - start, around, depth + 1)
    }
}

fn is_pointer(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
    )
}

fn only(found: BTreeSet<String>) -> Option<String> {
    let mut found = found.into_iter();
    found.next().filter(|_| found.next().is_none())
}

/// All locks that can be got at from some types.
struct Search<'c, 'm, 'r, 'a> {
    call: &'c Call<'m, 'r, 'a>,
    seen: HashSet<UnitOffset>,
    found: BTreeSet<String>,
}

impl<'a> Search<'_, '_, '_, 'a> {
    fn reach(&mut self, of: AttributeValue<Slice<'a>>, depth: usize) {
        let Some((at, entry)) = self.call.plain(of).filter(|_| depth < DEEPEST) else { return };
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
        if !is_struct || self.seen.len() >= TYPES || !self.seen.insert(at) {
            return;
        }
        if let Some(known) = self.call.members.structs.get(&(self.call.unit, at)) {
            let fit = known.locks.iter().filter(|(_, _, of)| is_lock(of, Some(self.call.kind)));
            // What is made to be a lock may be in anything.
            let name = if is_lock_type(&known.name) { "" } else { &known.name };
            self.found.extend(fit.map(|(_, member, _)| format!("{name}::{member}")));
        }
        let Ok(mut tree) = self.call.reader.unit.entries_tree(Some(at)) else { return };
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
