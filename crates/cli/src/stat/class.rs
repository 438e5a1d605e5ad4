//! Locks of one sort as one: by the variable that they lie in, by the line that initialised them, and where
//! neither is known by the line that takes them; over all processes of a run.
//!
//! A function that initialises locks for everybody (`uv_mutex_init`) is no sort. Where the callers of such a
//! function differ, they tell the sorts apart: see [`Cuts`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use poundlock_statfile::{LockKind, LockStats};

use super::names::{FrameId, Known, NO_STACK, Names, StackId};
use super::report::side;
use crate::observe::shorten::{self, shorten};
use crate::observe::symbols::{Frame, Space, Variable};
use crate::observe::words::{makes_locks, makes_objects};

/// As many locks of a class are known by their addresses, for what the sampler saw of them.
const MOST_ADDRESSES: usize = 10_000;

/// The figures of one lock, or of many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// How many locks.
    pub(crate) locks: u64,
    /// How many of them somebody waited for.
    pub(crate) waited_locks: u64,
    /// How long threads waited for that one of them for which they waited longest.
    pub(crate) top_wait_ns: u64,
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) timeouts: u64,
    pub(crate) wait_ns: u64,
    pub(crate) wait_max_ns: u64,
    /// By power of two of nanoseconds.
    pub(crate) wait_buckets: Vec<u64>,
    pub(crate) hold_ns: u64,
    pub(crate) hold_max_ns: u64,
    /// The variance of `hold_ns`, which is an estimate.
    pub(crate) hold_variance: f64,
    pub(crate) waited_holds: u64,
    pub(crate) waited_hold_ns: u64,
    pub(crate) waited_hold_buckets: Vec<u64>,
    pub(crate) handover_ns: u64,
    pub(crate) signals: u64,
    pub(crate) broadcasts: u64,
    pub(crate) signals_with_mutex: u64,
    pub(crate) in_vain: u64,
    pub(crate) sites: HashMap<StackId, SiteFigures>,
    /// By the line that acquired it and the stack that released it.
    pub(crate) holders: HashMap<(StackId, StackId), HolderFigures>,
}

/// Waits at one place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SiteFigures {
    pub(crate) contended: u64,
    pub(crate) wait_ns: u64,
    pub(crate) wait_max_ns: u64,
    pub(crate) timeouts: u64,
    pub(crate) in_vain: u64,
}

/// Holds from one place for which others waited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HolderFigures {
    pub(crate) holds: u64,
    pub(crate) hold_ns: u64,
    pub(crate) hold_max_ns: u64,
    pub(crate) caused_ns: u64,
}

/// Applies a function to each sum in two sets of figures.
macro_rules! each_sum {
    ($of:ident, $with:ident, $f:expr) => {
        each_sum!(@ $of, $with, $f, locks waited_locks acquisitions contended timeouts wait_ns hold_ns
            waited_holds waited_hold_ns handover_ns signals broadcasts signals_with_mutex in_vain)
    };
    (@ $of:ident, $with:ident, $f:expr, $($field:ident)*) => {
        $($of.$field = $f($of.$field, $with.$field);)*
    };
}

impl Figures {
    /// Where threads waited longest.
    pub(crate) fn longest_site(&self) -> Option<(StackId, &SiteFigures)> {
        self.sites.iter().max_by_key(|(_, site)| site.wait_ns).map(|(&stack, site)| (stack, site))
    }

    /// Of one lock, with names for its places.
    pub(crate) fn of(lock: &LockStats, names: &mut Names, space: &Space, known: &mut Known) -> Figures {
        let mut figures = Figures::default();
        figures.add_lock(lock, names, space, known);
        figures
    }

    fn add_lock(&mut self, lock: &LockStats, names: &mut Names, space: &Space, known: &mut Known) {
        let own = Figures {
            locks: u64::from(lock.address != 0),
            waited_locks: u64::from(lock.address != 0 && lock.contended > 0),
            top_wait_ns: lock.wait_total_ns,
            acquisitions: lock.acquisitions,
            contended: lock.contended,
            timeouts: lock.timeouts,
            wait_ns: lock.wait_total_ns,
            wait_max_ns: lock.wait_max_ns,
            hold_ns: lock.hold_total_ns,
            hold_max_ns: lock.hold_max_ns,
            hold_variance: if lock.hold.error_ns.is_finite() { lock.hold.error_ns.powi(2) } else { 0.0 },
            waited_holds: lock.waited_holds,
            waited_hold_ns: lock.waited_hold_ns,
            handover_ns: lock.handover_ns,
            signals: lock.signals,
            broadcasts: lock.broadcasts,
            signals_with_mutex: lock.signals_with_mutex,
            in_vain: lock.in_vain,
            ..Figures::default()
        };
        self.add(&own);
        add_buckets(&mut self.wait_buckets, &lock.wait_buckets);
        add_buckets(&mut self.waited_hold_buckets, &lock.waited_hold_buckets);
        for site in &lock.sites {
            let stack = names.stack(&site.stack, space, known);
            self.sites.entry(stack).or_default().add(&SiteFigures {
                contended: site.contended,
                wait_ns: site.wait_ns,
                wait_max_ns: site.wait_max_ns,
                timeouts: site.timeouts,
                in_vain: site.in_vain,
            });
        }
        for holder in &lock.holders {
            let acquired = match holder.acquired_at {
                0 => NO_STACK,
                address => names.call(address, space, known),
            };
            let released = names.stack(&holder.stack, space, known);
            self.holders.entry((acquired, released)).or_default().add(&HolderFigures {
                holds: holder.holds,
                hold_ns: holder.hold_ns,
                hold_max_ns: holder.hold_max_ns,
                caused_ns: holder.caused_ns,
            });
        }
    }

    pub(crate) fn add(&mut self, other: &Figures) {
        each_sum!(self, other, u64::saturating_add);
        self.top_wait_ns = self.top_wait_ns.max(other.top_wait_ns);
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.hold_max_ns = self.hold_max_ns.max(other.hold_max_ns);
        self.hold_variance += other.hold_variance;
        add_buckets(&mut self.wait_buckets, &other.wait_buckets);
        add_buckets(&mut self.waited_hold_buckets, &other.waited_hold_buckets);
        for (&stack, site) in &other.sites {
            self.sites.entry(stack).or_default().add(site);
        }
        for (&place, holder) in &other.holders {
            self.holders.entry(place).or_default().add(holder);
        }
    }

    /// Takes away what was there before. Maxima stay: they began anew then (`forget_longest`).
    pub(super) fn take_away(&mut self, before: &Figures) {
        let (locks, waited) = (self.locks, self.waited_locks);
        each_sum!(self, before, u64::saturating_sub);
        (self.locks, self.waited_locks) = (locks, waited);
        self.top_wait_ns = self.top_wait_ns.min(self.wait_ns);
        let buckets = [
            (&mut self.wait_buckets, &before.wait_buckets),
            (&mut self.waited_hold_buckets, &before.waited_hold_buckets),
        ];
        for (now, before) in buckets {
            for (now, before) in now.iter_mut().zip(before) {
                *now = now.saturating_sub(*before);
            }
        }
        for (stack, site) in &before.sites {
            if let Some(now) = self.sites.get_mut(stack) {
                now.contended = now.contended.saturating_sub(site.contended);
                now.wait_ns = now.wait_ns.saturating_sub(site.wait_ns);
                now.timeouts = now.timeouts.saturating_sub(site.timeouts);
                now.in_vain = now.in_vain.saturating_sub(site.in_vain);
            }
        }
        self.sites.retain(|_, site| site.contended > 0);
        for (place, holder) in &before.holders {
            if let Some(now) = self.holders.get_mut(place) {
                now.holds = now.holds.saturating_sub(holder.holds);
                now.hold_ns = now.hold_ns.saturating_sub(holder.hold_ns);
                now.caused_ns = now.caused_ns.saturating_sub(holder.caused_ns);
            }
        }
        self.holders.retain(|_, holder| holder.holds > 0);
    }

    /// Whether a wait takes a second or more on average: for work, say.
    pub(super) fn is_for_long(&self) -> bool {
        self.wait_ns.checked_div(self.contended).is_some_and(|average| average >= 1_000_000_000)
    }

    /// Whether nothing happened.
    pub(super) fn is_empty(&self) -> bool {
        self.acquisitions == 0 && self.contended == 0
    }
}

impl SiteFigures {
    pub(crate) fn add(&mut self, other: &SiteFigures) {
        self.contended = self.contended.saturating_add(other.contended);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.timeouts = self.timeouts.saturating_add(other.timeouts);
        self.in_vain = self.in_vain.saturating_add(other.in_vain);
    }
}

impl HolderFigures {
    pub(crate) fn add(&mut self, other: &HolderFigures) {
        self.holds = self.holds.saturating_add(other.holds);
        self.hold_ns = self.hold_ns.saturating_add(other.hold_ns);
        self.hold_max_ns = self.hold_max_ns.max(other.hold_max_ns);
        self.caused_ns = self.caused_ns.saturating_add(other.caused_ns);
    }
}

fn add_buckets(to: &mut Vec<u64>, from: &[u64]) {
    to.resize(to.len().max(from.len()), 0);
    for (to, from) in to.iter_mut().zip(from) {
        *to = to.saturating_add(*from);
    }
}

/// By what locks are of one sort.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Origin {
    Variable(Variable),
    /// The stack that initialised it.
    Made(StackId),
    /// The member of a struct or a class, whole.
    Member(String),
    /// The stack that waited most for it.
    Taken(StackId),
    /// Nobody knows. Several locks that are counted together are of this origin as well.
    Unknown,
}

/// What locks of one process have in common if they are of one origin.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    /// The variable, where the process's [`Space`] has it.
    Variable(LockKind, *const Variable),
    /// The stack that initialised it.
    Made(LockKind, StackId),
    /// The stack that waited most for it, and the innermost return address.
    Taken(LockKind, StackId, u64),
    Unknown(LockKind),
}

/// What is known of locks of one origin and kind before all are known.
struct Group {
    kind: LockKind,
    origin: Origin,
    figures: Figures,
    processes: BTreeSet<u32>,
    /// The variable of the first one.
    single: Option<Variable>,
    /// The lock itself, as long as there is one.
    only: Option<(u32, u64)>,
    /// Those that somebody waited for: process and address.
    addresses: HashSet<(u32, u64)>,
}

/// The name of a class and where it comes from, with nothing left out.
#[derive(Default)]
pub(crate) struct WholeNames {
    pub(crate) name: String,
    pub(crate) at: String,
}

/// A name as reports show it.
#[derive(Clone, Debug, Default)]
struct Name {
    shown: String,
    whole: String,
}

impl Name {
    /// A name of which nothing is left out.
    fn plain(name: impl Into<String>) -> Name {
        let shown = name.into();
        Name { whole: shown.clone(), shown }
    }

    /// The text of a frame.
    fn of_frame(frame: &Frame) -> Name {
        Name { shown: frame.text.clone(), whole: frame.whole.clone() }
    }

    fn of_variable(variable: &Variable) -> Name {
        Name { shown: variable.name.clone(), whole: variable.whole.clone() }
    }

    /// With words before it.
    fn after(self, words: &str) -> Name {
        Name { shown: format!("{words} {}", self.shown), whole: format!("{words} {}", self.whole) }
    }
}

/// The locks of one sort.
pub(crate) struct Class {
    /// What people call it.
    pub(crate) name: String,
    /// More about where it comes from; may be empty.
    pub(crate) at: String,
    /// Both with nothing left out.
    pub(crate) whole: WholeNames,
    /// What the name is the name of.
    pub(crate) origin: &'static str,
    pub(crate) kind: LockKind,
    /// A stack that initialised one of them.
    pub(crate) made: StackId,
    /// The processes that used them.
    pub(crate) processes: BTreeSet<u32>,
    /// Those that somebody waited for: process and address.
    pub(crate) addresses: HashSet<(u32, u64)>,
    pub(crate) figures: Figures,
}

/// Puts locks into classes.
pub(crate) struct Grouping {
    pub(crate) names: Names,
    groups: Vec<Group>,
    places: HashMap<(LockKind, Origin), usize>,
    before: Vec<Group>,
    /// By the line that waits, and the innermost call there: the member that it locks.
    members: HashMap<(FrameId, u64), Option<String>>,
}

impl Grouping {
    pub(crate) fn new() -> Self {
        Grouping {
            names: Names::new(),
            groups: Vec::new(),
            places: HashMap::new(),
            before: Vec::new(),
            members: HashMap::new(),
        }
    }

    /// Adds a lock of a process.
    pub(super) fn add(&mut self, pid: u32, lock: &LockStats, space: &Space, known: &mut Known) {
        let place = self.place(pid, lock, space, known);
        self.count(place, pid, lock);
        self.groups[place].figures.add_lock(lock, &mut self.names, space, known);
    }

    /// Adds a lock to the group at a [`Grouping::place`], without its figures.
    pub(crate) fn count(&mut self, place: usize, pid: u32, lock: &LockStats) {
        let group = &mut self.groups[place];
        if group.only != Some((pid, lock.address)) {
            group.only = None;
        }
        group.processes.insert(pid);
        // There are at most as many as the sampler can have seen waits for.
        if lock.contended > 0 && group.addresses.len() < MOST_ADDRESSES {
            group.addresses.insert((pid, lock.address));
        }
    }

    /// What the locks of a group are.
    pub(crate) fn kind(&self, place: usize) -> LockKind {
        self.groups[place].kind
    }

    /// The figures of a group.
    pub(crate) fn figures(&mut self, place: usize) -> &mut Figures {
        &mut self.groups[place].figures
    }

    /// The group of a lock. Whoever knows it of one of a sort need not look at names for the others.
    pub(crate) fn place(&mut self, pid: u32, lock: &LockStats, space: &Space, known: &mut Known) -> usize {
        let sort = self.sort(lock, space, known);
        if let Some(&place) = known.places.get(&sort) {
            return place;
        }
        let (origin, single) = self.origin(lock, space, known);
        let key = (lock.kind, origin);
        let place = match self.places.get(&key) {
            Some(&place) => place,
            None => {
                let place = self.groups.len();
                self.groups.push(Group {
                    kind: key.0,
                    origin: key.1.clone(),
                    figures: Figures::default(),
                    processes: BTreeSet::new(),
                    single,
                    only: Some((pid, lock.address)),
                    addresses: HashSet::new(),
                });
                self.places.insert(key, place);
                place
            }
        };
        known.places.insert(sort, place);
        place
    }

    fn sort(&mut self, lock: &LockStats, space: &Space, known: &mut Known) -> Sort {
        let variable = if lock.address == 0 { None } else { space.variables(lock.object()) };
        let waited = lock.sites.first().map(|site| &site.stack).filter(|stack| !stack.is_empty());
        match (variable, waited) {
            _ if lock.address == 0 => Sort::Unknown(lock.kind),
            (Some(variable), _) => Sort::Variable(lock.kind, Rc::as_ptr(&variable)),
            (None, _) if !lock.created_at.is_empty() => {
                Sort::Made(lock.kind, self.names.stack(&lock.created_at, space, known))
            }
            (None, Some(stack)) => Sort::Taken(lock.kind, self.names.stack(stack, space, known), stack[0]),
            (None, None) => Sort::Unknown(lock.kind),
        }
    }

    fn origin(&mut self, lock: &LockStats, space: &Space, known: &mut Known) -> (Origin, Option<Variable>) {
        if lock.address == 0 {
            return (Origin::Unknown, None);
        }
        if let Some(variable) = space.variables(lock.object()) {
            let origin = Origin::Variable((*variable).clone());
            let is_known = self.places.contains_key(&(lock.kind, origin.clone()));
            let single = if is_known { None } else { space.variable(lock.object()) };
            return (origin, single);
        }
        if !lock.created_at.is_empty() {
            return (Origin::Made(self.names.stack(&lock.created_at, space, known)), None);
        }
        match lock.sites.first() {
            Some(site) if !site.stack.is_empty() => {
                let stack = self.names.stack(&site.stack, space, known);
                let is_named = lock.kind.is_acquired() || lock.kind == LockKind::Condition;
                let line = self.names.line_of(stack).filter(|_| is_named);
                let member = line.and_then(|line| {
                    let known = self.members.entry((line, site.stack[0]));
                    let member = || space.member(&site.stack, self.names.frame_of(line), lock.kind);
                    known.or_insert_with(member).clone()
                });
                (member.map_or(Origin::Taken(stack), Origin::Member), None)
            }
            _ => (Origin::Unknown, None),
        }
    }

    /// What was added so far was there before: it is taken away from what is added from now on.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.groups);
        self.places.clear();
    }

    /// The classes, most waiting first.
    pub(super) fn finish(mut self) -> (Names, Vec<Class>) {
        for group in std::mem::take(&mut self.before) {
            if let Some(&place) = self.places.get(&(group.kind, group.origin)) {
                self.groups[place].figures.take_away(&group.figures);
            }
        }
        self.groups.retain(|group| !group.figures.is_empty());
        let mut classes = Vec::new();
        for sort in self.sorts() {
            let mut class = sort.class;
            for place in sort.groups {
                let group = &mut self.groups[place];
                class.addresses.extend(std::mem::take(&mut group.addresses));
                class.figures.add(&std::mem::take(&mut group.figures));
            }
            classes.push(class);
        }
        classes.sort_by(|a, b| {
            let rank = |class: &Class| {
                let figures = &class.figures;
                std::cmp::Reverse((figures.wait_ns, figures.contended, figures.acquisitions, figures.hold_ns))
            };
            rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
        });
        (self.names, classes)
    }

    /// What there are, by names, and which groups each is.
    pub(crate) fn sorts(&self) -> Vec<Sorted> {
        let (names, groups) = (&self.names, &self.groups);
        let made = groups.iter().filter_map(|group| match group.origin {
            Origin::Made(stack) => Some(stack),
            _ => None,
        });
        let cuts = Cuts::new(names, made.collect());
        let lines = Lines::new(names, groups);
        let mut merged: BTreeMap<(u8, String, String), Sorted> = BTreeMap::new();
        for (index, group) in groups.iter().enumerate() {
            let none = || Name::plain("");
            let (origin, name, at, made) = match &group.origin {
                Origin::Variable(variable) => {
                    let single = group.single.as_ref().filter(|_| group.only.is_some());
                    let name = Name::of_variable(single.unwrap_or(variable));
                    let at = Name::plain(variable.declared_at.as_deref().unwrap_or_default());
                    ("variable", name, at, NO_STACK)
                }
                Origin::Made(stack) => {
                    let (name, at) = cuts.name(names, *stack);
                    ("initialised", name, at, *stack)
                }
                Origin::Member(name) => {
                    let line = group.figures.longest_site().and_then(|(stack, _)| names.line_of(stack));
                    let at = line.map(|line| Name::of_frame(names.frame_of(line)).after("taken in"));
                    let name = Name { shown: shorten(name, shorten::COLUMNS, &[]), whole: name.clone() };
                    ("member", name, at.unwrap_or_else(none), NO_STACK)
                }
                Origin::Taken(_) => ("taken", lines.name(names, index).after("taken in"), none(), NO_STACK),
                Origin::Unknown => ("unknown", Name::plain(unknown(group.kind)), none(), NO_STACK),
            };
            // Of a member it is only one of several places.
            let of = if origin == "member" { String::new() } else { at.whole.clone() };
            let key = (group.kind as u8, format!("{}\n{}", name.whole, name.shown), of);
            let sort = merged.entry(key).or_insert_with(|| Sorted {
                class: Class {
                    name: name.shown,
                    at: at.shown,
                    whole: WholeNames { name: name.whole, at: at.whole },
                    origin,
                    kind: group.kind,
                    made,
                    processes: BTreeSet::new(),
                    addresses: HashSet::new(),
                    figures: Figures::default(),
                },
                groups: Vec::new(),
            });
            sort.class.processes.extend(&group.processes);
            sort.groups.push(index);
        }
        merged.into_values().collect()
    }
}

impl Class {
    /// What one of its locks is called, if its class says that. A variable has a name of its own.
    pub(crate) fn name_of_one(&self, address: u64, is_one: bool) -> Option<String> {
        let kind = match side(self.kind) {
            Some(_) => "readers-writer lock".to_owned(),
            None => self.kind.to_string(),
        };
        match self.origin {
            "initialised" => Some(format!("the {kind} made in {}", self.name)),
            "taken" => Some(format!("the {kind} {}", self.name)),
            "member" if !is_one => Some(format!("{} at {address:#x}", self.name)),
            "member" => Some(self.name.clone()),
            _ => None,
        }
    }
}

/// A class without its figures, and the groups that it is.
pub(crate) struct Sorted {
    pub(crate) class: Class,
    pub(crate) groups: Vec<usize>,
}

/// What is said of locks of which nothing is known but the kind.
fn unknown(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Recycled => "destroyed, never waited for",
        LockKind::Overflow => "locks beyond the table",
        LockKind::Join => "thread joins",
        _ => "of unknown origin, never waited for",
    }
}

/// How far the stacks that initialise locks have to be read until they tell sorts apart.
///
/// From the innermost frame on: a function that makes locks for others (by its name), and a function that is
/// called by several others and makes no objects, is a wrapper; where the callers of a wrapper differ, each
/// caller is a sort of its own, unless it is a wrapper itself.
struct Cuts {
    /// How many frames of interest of each stack.
    lengths: HashMap<StackId, usize>,
}

impl Cuts {
    fn new(names: &Names, mut stacks: Vec<StackId>) -> Self {
        stacks.sort_unstable();
        stacks.dedup();
        let stacks: Vec<(StackId, Vec<FrameId>)> =
            stacks.into_iter().map(|stack| (stack, names.interesting(stack))).collect();
        let mut cuts = Cuts { lengths: HashMap::new() };
        let all: Vec<&(StackId, Vec<FrameId>)> = stacks.iter().collect();
        for group in by_frame(&all, 0).into_values() {
            cuts.split(names, &group, 1);
        }
        cuts
    }

    /// All of these stacks have the first `depth` frames in common.
    fn split(&mut self, names: &Names, stacks: &[&(StackId, Vec<FrameId>)], depth: usize) {
        let end = self.wrapped(names, stacks, depth);
        match end {
            None => self.lengths.extend(stacks.iter().map(|(stack, _)| (*stack, depth))),
            Some(end) => {
                for (caller, group) in by_frame(stacks, end) {
                    let depth = if caller.is_some() { end + 1 } else { end };
                    let wraps = caller.is_some_and(|frame| makes_locks(&names.frame_of(frame).function));
                    if wraps {
                        self.split(names, &group, depth);
                    } else {
                        self.lengths.extend(group.iter().map(|(stack, _)| (*stack, depth)));
                    }
                }
            }
        }
    }

    /// If the last frame in common is one of a wrapper, the depth at which its callers differ.
    fn wrapped(&self, names: &Names, stacks: &[&(StackId, Vec<FrameId>)], depth: usize) -> Option<usize> {
        let frame = stacks.first()?.1.get(depth.checked_sub(1)?)?;
        let function = &names.frame_of(*frame).function;
        let callers = by_frame(stacks, depth);
        if makes_locks(function) {
            // Through wrappers that have one caller each.
            return if callers.len() > 1 {
                Some(depth)
            } else {
                callers.keys().next()?.and_then(|_| self.wrapped_alone(names, stacks, depth + 1))
            };
        }
        let functions: BTreeSet<&str> =
            callers.keys().flatten().map(|&frame| names.frame_of(frame).function.as_str()).collect();
        (functions.len() > 1 && !function.is_empty() && !makes_objects(function)).then_some(depth)
    }

    /// The same of a wrapper with one caller: only another wrapper of that sort counts.
    fn wrapped_alone(
        &self,
        names: &Names,
        stacks: &[&(StackId, Vec<FrameId>)],
        depth: usize,
    ) -> Option<usize> {
        let frame = stacks.first()?.1.get(depth - 1)?;
        makes_locks(&names.frame_of(*frame).function).then(|| self.wrapped(names, stacks, depth))?
    }

    /// The frame that tells it apart; and the wrapper by which it was made, or the line of the program that
    /// led into a library.
    fn name(&self, names: &Names, stack: StackId) -> (Name, Name) {
        let frames = names.interesting(stack);
        let length = self.lengths.get(&stack).copied().unwrap_or(1).min(frames.len());
        let Some(&frame) = frames.get(length.wrapping_sub(1)) else { return Default::default() };
        let frame = names.frame_of(frame);
        let name = Name::of_frame(frame);
        if length > 1 {
            let wrapper = names.frame_of(frames[0]);
            let wrapper = match wrapper.function.is_empty() {
                true => Name::of_frame(wrapper),
                false => Name { shown: wrapper.name.clone(), whole: wrapper.function.clone() },
            };
            return (name, wrapper.after("by"));
        }
        let program = frames.iter().map(|&id| names.frame_of(id)).find(|outer| outer.in_program);
        match program {
            Some(outer) if !frame.in_program => (name, Name::of_frame(outer).after("via")),
            _ => (name, Name::default()),
        }
    }
}

/// Stacks by the frame that each has at a depth.
fn by_frame<'s>(
    stacks: &[&'s (StackId, Vec<FrameId>)],
    depth: usize,
) -> BTreeMap<Option<FrameId>, Vec<&'s (StackId, Vec<FrameId>)>> {
    let mut groups: BTreeMap<Option<FrameId>, Vec<&(StackId, Vec<FrameId>)>> = BTreeMap::new();
    for stack in stacks {
        groups.entry(stack.1.get(depth).copied()).or_default().push(stack);
    }
    groups
}

/// Locks that are known by the lines that take them: those of one kind that are taken at one line are of one
/// sort.
struct Lines {
    /// By line: another one of the same sort, or itself.
    same: HashMap<(u8, FrameId), FrameId>,
    /// By the same, how long threads waited at each line of the sort, and which line that was.
    longest: HashMap<(u8, FrameId), (u64, FrameId)>,
    /// By group.
    lines: HashMap<usize, (u8, FrameId)>,
}

impl Lines {
    fn new(names: &Names, groups: &[Group]) -> Self {
        let mut lines = Lines { same: HashMap::new(), longest: HashMap::new(), lines: HashMap::new() };
        let mut waits: HashMap<(u8, FrameId), u64> = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            let Origin::Taken(top) = group.origin else { continue };
            let kind = group.kind as u8;
            let Some(top) = names.line_of(top) else { continue };
            lines.lines.insert(index, (kind, top));
            lines.same.entry((kind, top)).or_insert(top);
            for (&stack, site) in &group.figures.sites {
                let Some(line) = names.line_of(stack) else { continue };
                *waits.entry((kind, line)).or_default() += site.wait_ns;
                lines.same.entry((kind, line)).or_insert(line);
                let (a, b) = (lines.root(kind, top), lines.root(kind, line));
                lines.same.insert((kind, a.max(b)), a.min(b));
            }
        }
        for (&(kind, line), &ns) in &waits {
            let root = lines.root(kind, line);
            let longest = lines.longest.entry((kind, root)).or_insert((ns, line));
            *longest = (*longest).max((ns, line));
        }
        lines
    }

    fn root(&self, kind: u8, line: FrameId) -> FrameId {
        let mut at = line;
        while let Some(&next) = self.same.get(&(kind, at)) {
            if next == at {
                break;
            }
            at = next;
        }
        at
    }

    /// The line of the sort at which threads waited longest.
    fn name(&self, names: &Names, group: usize) -> Name {
        let Some(&(kind, line)) = self.lines.get(&group) else { return Name::plain("an unknown place") };
        let root = self.root(kind, line);
        let line = self.longest.get(&(kind, root)).map_or(line, |&(_, line)| line);
        Name::of_frame(names.frame_of(line))
    }
}
