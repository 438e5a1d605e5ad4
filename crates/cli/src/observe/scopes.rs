//! What functions are in: classes, namespaces and other functions, by the debug information (DWARF).
//!
//! Compilers give no linkage name to a function that has none, such as a lambda's, and no whole name to a
//! template that has such a type as argument. Their entries are found by the address, with those of functions
//! that are inlined there, and the entries around them say the rest: the name, the class whose lock is meant
//! by `this`, and the line at which a lambda begins.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, UnitOffset};
use poundlock_statfile::LockKind;

use super::members::{is_pointer, names_another};
use super::shorten::bare;
use super::symbols::readable;
use super::variables::{DEEPEST, Entry, Reader, Slice, Variables};

/// A function, or one that is inlined into it: the unit, and the entry in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    unit: DebugInfoOffset,
    at: UnitOffset,
}

/// What each function, class and namespace of a unit is in.
pub(super) type Around = HashMap<UnitOffset, UnitOffset>;

/// Where something is declared: a file and a line.
type Place = (String, u32);

impl Variables {
    /// The functions that an address is in, innermost first: those that are inlined there, and the one around
    /// them.
    pub(crate) fn scopes_at(&self, vaddr: u64) -> Option<Vec<Scope>> {
        let (unit, function) = self.members.function_at(vaddr)?;
        self.with_unit(unit, |reader| {
            let mut found = vec![Scope { unit, at: function }];
            let mut entries = reader.unit.entries_at_offset(function).ok()?;
            entries.next_dfs().ok()??;
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.depth() <= 0 {
                    break;
                }
                if entry.tag() == gimli::DW_TAG_inlined_subroutine {
                    let mut ranges = reader.dwarf.die_ranges(reader.unit, entry).ok()?;
                    while let Ok(Some(range)) = ranges.next() {
                        if (range.begin..range.end).contains(&vaddr) {
                            found.push(Scope { unit, at: entry.offset() });
                            break;
                        }
                    }
                }
            }
            found.reverse();
            Some(found)
        })
    }

    /// The function's name, with the names of what it is in.
    pub(crate) fn name_of_scope(&self, scope: &Scope) -> Option<String> {
        self.with_chain(scope, |reader, chain| {
            let mut parts = Vec::new();
            for &at in chain {
                let entry = reader.unit.entry(at).ok()?;
                if let Some(name) = linkage_name(reader, &entry) {
                    parts.push(bare(&readable(&name)).into_owned());
                    break;
                }
                match reader.name(&entry) {
                    Some(name) => parts.push(name),
                    None if entry.tag() == gimli::DW_TAG_namespace => {
                        parts.push("(anonymous namespace)".to_owned())
                    }
                    None if is_lambda(reader, at, &entry) => parts.push("{lambda()}".to_owned()),
                    None => {}
                }
            }
            parts.reverse();
            Some(parts.join("::"))
        })
    }

    /// Where the lambdas begin that the function's name has: that which it is of, or those that are arguments
    /// of its templates.
    pub(crate) fn lambdas_of(&self, scope: &Scope) -> Vec<Place> {
        let places = self.with_chain(scope, |reader, chain| {
            let mut places = Vec::new();
            for &at in chain {
                let entry = reader.unit.entry(at).ok()?;
                if is_lambda(reader, at, &entry) {
                    return Some(vec![reader.place(&entry)?]);
                }
            }
            for &at in chain.iter().rev() {
                add_arguments(reader, at, &mut places, 0);
            }
            Some(places)
        });
        places.unwrap_or_default()
    }

    /// The lock that a method takes: the only one of the kind that its class has or inherits. With one that a
    /// parameter leads to there are two possibilities.
    pub(crate) fn lock_of_scope(&self, scope: &Scope, kind: LockKind) -> Option<String> {
        self.with_chain(scope, |reader, chain| {
            let lock_of = |at: UnitOffset| self.members.lock_of((scope.unit, at), kind);
            let leads_elsewhere =
                reader.children(chain[0], gimli::DW_TAG_formal_parameter).iter().any(|entry| {
                    let is_own = entry.attr(gimli::DW_AT_artificial).is_some();
                    let to = entry.attr_value(gimli::DW_AT_type).and_then(|of| reader.pointed_at(of));
                    !is_own && to.is_some_and(|(at, _)| lock_of(at).is_some())
                });
            if leads_elsewhere {
                return None;
            }
            let is_class = |at: &&UnitOffset| {
                let entry = reader.unit.entry(**at).ok();
                entry.is_some_and(|entry| is_class(&entry) && !is_lambda(reader, **at, &entry))
            };
            let class = *chain.iter().find(is_class)?;
            let bases = || {
                let bases = reader.children(class, gimli::DW_TAG_inheritance);
                let mut locks = bases.iter().filter_map(|base| {
                    let (at, _) = reader.pointed_at(base.attr_value(gimli::DW_AT_type)?)?;
                    lock_of(at)
                });
                locks.next().filter(|_| locks.next().is_none())
            };
            lock_of(class).or_else(bases)
        })
    }

    fn with_unit<T>(
        &self,
        unit: DebugInfoOffset,
        what: impl FnOnce(&Reader<'_, '_>) -> Option<T>,
    ) -> Option<T> {
        let dwarf = self.dwarf();
        let of_unit = dwarf.unit(dwarf.debug_info.header_from_offset(unit).ok()?).ok()?;
        what(&Reader { dwarf: &dwarf, unit: &of_unit })
    }

    /// With a function's declaration, and what that is in, innermost first.
    fn with_chain<T>(
        &self,
        scope: &Scope,
        what: impl FnOnce(&Reader<'_, '_>, &[UnitOffset]) -> Option<T>,
    ) -> Option<T> {
        self.with_unit(scope.unit, |reader| {
            let known = self.arounds.borrow().get(&scope.unit).cloned();
            let around = known.unwrap_or_else(|| {
                let around = Rc::new(reader.around());
                self.arounds.borrow_mut().insert(scope.unit, Rc::clone(&around));
                around
            });
            let mut chain = vec![reader.declared_by(scope.at)];
            while let Some(&outer) = chain.last().and_then(|at| around.get(at)) {
                chain.push(reader.declared_by(outer));
                if chain.len() > 4 * DEEPEST {
                    return None;
                }
            }
            what(reader, &chain)
        })
    }
}

impl<'a> Reader<'_, 'a> {
    /// What each function, class and namespace of the unit is in.
    fn around(&self) -> Around {
        let mut around = Around::new();
        let mut scopes: Vec<(isize, UnitOffset)> = Vec::new();
        let mut entries = self.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            scopes.retain(|(depth, _)| *depth < entry.depth());
            let is_scope =
                is_class(entry) || matches!(entry.tag(), gimli::DW_TAG_namespace | gimli::DW_TAG_subprogram);
            if is_scope {
                if let Some(&(_, outer)) = scopes.last() {
                    around.insert(entry.offset(), outer);
                }
                scopes.push((entry.depth(), entry.offset()));
            }
        }
        around
    }

    /// The entry that declares what this one defines or inlines.
    fn declared_by(&self, at: UnitOffset) -> UnitOffset {
        let mut at = at;
        for _ in 0..DEEPEST {
            let origin = self.unit.entry(at).ok().and_then(|entry| {
                let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
                origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))
            });
            let Some(AttributeValue::UnitRef(origin)) = origin else { break };
            at = origin;
        }
        at
    }

    /// A type behind its names, and behind what points at it.
    fn pointed_at(&self, of: AttributeValue<Slice<'a>>) -> Option<(UnitOffset, Entry<'a>)> {
        let mut of = of;
        for _ in 0..DEEPEST {
            let (at, entry) = self.entry(of)?;
            if !(names_another(&entry) || is_pointer(&entry)) {
                return Some((at, entry));
            }
            of = entry.attr_value(gimli::DW_AT_type)?;
        }
        None
    }

    /// The entries of one sort in another one.
    fn children(&self, at: UnitOffset, tag: gimli::DwTag) -> Vec<Entry<'a>> {
        let mut found = Vec::new();
        let Ok(mut tree) = self.unit.entries_tree(Some(at)) else { return found };
        let Ok(root) = tree.root() else { return found };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            if child.entry().tag() == tag {
                found.push(child.entry().clone());
            }
        }
        found
    }
}

fn is_class(entry: &Entry<'_>) -> bool {
    matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type)
}

/// Whether an entry is the class of a lambda, which has no name that a programmer gave.
fn is_lambda<'a>(reader: &Reader<'_, 'a>, at: UnitOffset, entry: &Entry<'a>) -> bool {
    let is_named =
        reader.name(entry).is_some_and(|name| !(name.starts_with("<lambda") || name.starts_with("__lambda")));
    if !is_class(entry) || is_named {
        return false;
    }
    let methods = reader.children(at, gimli::DW_TAG_subprogram);
    methods.iter().filter_map(|method| reader.name(method)).any(|name| name.starts_with("operator()"))
}

fn linkage_name<'a>(reader: &Reader<'_, 'a>, entry: &Entry<'a>) -> Option<String> {
    let value = entry.attr_value(gimli::DW_AT_linkage_name)?;
    Some(reader.dwarf.attr_string(reader.unit, value).ok()?.to_string_lossy().into_owned())
}

/// Adds the lambdas among the arguments of a template, in their order.
fn add_arguments(reader: &Reader<'_, '_>, at: UnitOffset, places: &mut Vec<Place>, depth: usize) {
    if depth >= DEEPEST {
        return;
    }
    let Ok(mut entries) = reader.unit.entries_at_offset(at) else { return };
    let Ok(Some(_)) = entries.next_dfs() else { return };
    let (mut arguments, mut in_pack) = (Vec::new(), false);
    while let Ok(Some(entry)) = entries.next_dfs() {
        match entry.depth() {
            ..=0 => break,
            1 => in_pack = entry.tag() == gimli::DW_TAG_GNU_template_parameter_pack,
            // Those of a class's methods are not its own.
            2 if in_pack => {}
            _ => continue,
        }
        if entry.tag() == gimli::DW_TAG_template_type_parameter {
            arguments.extend(entry.attr_value(gimli::DW_AT_type));
        }
    }
    for argument in arguments {
        let Some((at, entry)) = reader.pointed_at(argument).filter(|(_, entry)| is_class(entry)) else {
            continue;
        };
        if is_lambda(reader, at, &entry) {
            places.extend(reader.place(&entry));
        } else {
            add_arguments(reader, at, places, depth + 1);
        }
    }
}
