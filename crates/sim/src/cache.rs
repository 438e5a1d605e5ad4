//! Cache lines: which cores have a copy, and what it costs to get one.
//!
//! Each line is in one of the states of an invalidation protocol: one core owns it (modified or exclusive),
//! several cores share it, or none has it. Transfers of one line take turns at its home: one that begins
//! while another is under way waits for it. That makes a contended word slow, and it is the model's only
//! queue; links and memory are never saturated.
//!
//! A core here has a cache of its own, which its hardware threads share.

use rustc_hash::FxHashMap;

use crate::check::Slow;
use crate::machine::{Distance, Machine, Picoseconds};

/// The bytes of a line.
pub(crate) const LINE: usize = 64;

/// What an access does to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads.
    Load,
    /// Writes. It takes as long as the transfer: a store buffer that hides it is not modelled.
    Store,
    /// Reads, modifies and writes, atomically.
    Modify,
}

/// The name of a line in one run.
pub(crate) type LineId = u32;

/// A set of cores.
#[derive(Clone, Debug, Default)]
struct Cores(Vec<u64>);

impl Cores {
    fn new(cores: usize) -> Cores {
        Cores(vec![0; cores.div_ceil(64)])
    }

    fn has(&self, core: u32) -> bool {
        self.0[core as usize / 64] >> (core % 64) & 1 != 0
    }

    fn add(&mut self, core: u32) {
        self.0[core as usize / 64] |= 1 << (core % 64);
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    at as u32 * 64 + bit
                })
            })
        })
    }
}

/// A line.
#[derive(Debug)]
struct Line {
    /// The cores that have a copy. One alone may be its owner.
    copies: Cores,
    /// The core whose copy is newer than memory.
    owner: Option<u32>,
    /// The socket whose directory orders transfers: that of the thread which touched the line first.
    home: u32,
    /// When the transfer that is under way ends.
    busy_until: Picoseconds,
    /// When the last write has its effect. Until then a sibling of the writer has the line, but not yet what
    /// is written.
    settled: Picoseconds,
    /// How many writers there were.
    version: u32,
    /// Threads that do nothing until the line is written.
    watchers: Vec<u32>,
    /// The owners before this one.
    leaving: Vec<Leaving>,
    /// The core that last wrote a part of a word, and when.
    narrow: Option<(u32, Picoseconds)>,
}

/// A core that owns a line, or is about to, but will not for long.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    core: u32,
    /// From when on it has the line.
    from: Picoseconds,
    /// When the request that takes the line away reaches it.
    until: Picoseconds,
}

/// How an access went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// When it is done.
    pub(crate) done: Picoseconds,
    /// Whether the core had the line as it needed it.
    pub(crate) hit: bool,
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accesses.
    pub accesses: u64,
    /// Those that needed a transfer.
    pub transfers: u64,
    /// Transfers from another socket.
    pub remote: u64,
    /// Copies that were taken from other cores.
    pub invalidations: u64,
    /// Picoseconds for which transfers waited for others of the same line.
    pub queued: u64,
}

/// How many lines are found without the map.
const RECENT: usize = 1 << 10;

#[derive(Debug)]
struct Recent(Box<[(usize, LineId); RECENT]>);

impl Default for Recent {
    fn default() -> Recent {
        // No line is at address 0.
        Recent(Box::new([(0, 0); RECENT]))
    }
}

/// All lines of a run.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// By address. The names are given out in the order of first touch, which is the same in each run.
    names: FxHashMap<usize, LineId>,
    /// Those that were asked for last: the address and the name, by the lowest bits of the address.
    recent: Recent,
    lines: Vec<Line>,
    pub(crate) traffic: Traffic,
    /// Threads whose lines were written to.
    pub(crate) awakened: Vec<u32>,
    /// One that is slow.
    slow: Option<Slow>,
}

impl Lines {
    pub(crate) fn new(slow: Option<Slow>) -> Lines {
        Lines { slow, ..Lines::default() }
    }

    /// The line of this address. The access is `core`'s.
    pub(crate) fn name(&mut self, address: usize, core: u32, machine: &Machine) -> LineId {
        let place = address / LINE;
        let recent = &mut self.recent.0[place % RECENT];
        if recent.0 == place {
            return recent.1;
        }
        let lines = &mut self.lines;
        let name = *self.names.entry(place).or_insert_with(|| {
            lines.push(Line {
                copies: Cores::new(machine.cores()),
                owner: None,
                home: machine.socket_of_core(core),
                busy_until: 0,
                settled: 0,
                version: 0,
                watchers: Vec::new(),
                leaving: Vec::new(),
                narrow: None,
            });
            lines.len() as LineId - 1
        });
        *recent = (place, name);
        name
    }

    /// How many writers a line has had.
    pub(crate) fn version(&self, line: LineId) -> u32 {
        self.lines[line as usize].version
    }

    /// From now on `thread` is among those that [`Lines::access`] reports.
    pub(crate) fn watch(&mut self, line: LineId, thread: u32) {
        self.lines[line as usize].watchers.push(thread);
    }

    /// It is not any more.
    pub(crate) fn forget(&mut self, line: LineId, thread: u32) {
        self.lines[line as usize].watchers.retain(|&watcher| watcher != thread);
    }

    /// An access by `core` at `now`. `narrow`: to a part of a word. Moves those that watched the line into
    /// [`Lines::awakened`] if it is written.
    pub(crate) fn access(
        &mut self,
        machine: &Machine,
        line: LineId,
        core: u32,
        access: Access,
        narrow: bool,
        now: Picoseconds,
    ) -> Outcome {
        let costs = machine.costs();
        let delay = self.slow.map_or(0, |slow| slow.delay(line, core, now));
        let line = &mut self.lines[line as usize];
        let traffic = &mut self.traffic;
        traffic.accesses += 1;
        let atomic = if access == Access::Modify { costs.atomic } else { 0 };
        // A load that is wider than a store in the store buffer has to wait until the store has left it.
        let stall = match line.narrow {
            Some((by, at))
                if by == core && !narrow && access != Access::Store && now < at + costs.forwarding =>
            {
                costs.forwarding
            }
            _ => 0,
        };
        let hit = match access {
            Access::Load => line.copies.has(core),
            Access::Store | Access::Modify => line.owner == Some(core),
        };
        let quick = costs.hit + atomic + stall;
        let leaving = line.leaving.iter().filter(|leaving| !hit && leaving.core == core);
        // A sibling's request may be under way still.
        let stays = leaving
            .map(|leaving| (now.max(leaving.from) + quick, leaving.until))
            .find(|&(done, until)| done <= until);
        if let Some((done, _)) = stays {
            if access != Access::Load {
                line.version = line.version.wrapping_add(1);
                line.settled = line.settled.max(done);
                self.awakened.append(&mut line.watchers);
            }
            // The core that takes the line may be about to write: a spinner must look again before it sleeps,
            // so this is no hit.
            return Outcome { done, hit: false };
        }
        let done = if hit {
            now.max(line.settled) + costs.hit + atomic + stall
        } else {
            traffic.transfers += 1;
            let begin = now.max(line.busy_until);
            traffic.queued += begin - now;
            let mut cost = Self::fetch(machine, line, core, traffic);
            if access != Access::Load {
                // One request asks for the line and tells the others to drop it.
                cost = cost.max(Self::invalidate(machine, line, core, traffic));
            }
            cost += delay;
            let done = begin + cost;
            line.leaving.retain(|leaving| leaving.until > now);
            if let Some(owner) = line.owner.filter(|&owner| owner != core) {
                line.leaving.push(Leaving { core: owner, from: line.settled, until: begin + cost / 2 });
            }
            // Cores with a copy hand out copies, one after the other; the line itself goes on only when it is
            // there.
            line.busy_until =
                if access == Access::Load { begin + cost * costs.load_share / 256 } else { done };
            done + costs.hit + atomic + stall
        };
        match access {
            Access::Load => {
                if line.owner != Some(core) {
                    line.owner = None;
                }
                line.copies.add(core);
            }
            Access::Store | Access::Modify => {
                line.copies.clear();
                line.copies.add(core);
                line.owner = Some(core);
                line.settled = done;
                line.version = line.version.wrapping_add(1);
                self.awakened.append(&mut line.watchers);
                line.narrow = narrow.then_some((core, done));
            }
        }
        Outcome { done, hit }
    }

    /// What it costs to bring the line, or the right to write to it, to `core`.
    fn fetch(machine: &Machine, line: &Line, core: u32, traffic: &mut Traffic) -> Picoseconds {
        if let Some(owner) = line.owner {
            return match machine.distance(owner, core) {
                Distance::Within(level) => machine.level(level).transfer,
                Distance::Across(hops) => {
                    traffic.remote += 1;
                    Self::from_afar(machine, hops)
                }
            };
        }
        let to_home = machine.hops(line.home, machine.socket_of_core(core));
        match line.copies.iter().map(|other| machine.distance(other, core)).min() {
            // It has a copy itself, or a neighbour has.
            Some(Distance::Within(level)) => machine.level(level).shared,
            Some(Distance::Across(_)) => {
                traffic.remote += 1;
                Self::from_afar(machine, to_home.max(1))
            }
            // No core: memory.
            None => machine.costs().memory + machine.costs().hop * u64::from(to_home),
        }
    }

    /// What a message and its answer take to a socket that many links away, at least one.
    fn from_afar(machine: &Machine, hops: u32) -> Picoseconds {
        machine.costs().remote + machine.costs().hop * u64::from(hops - 1)
    }

    /// What it costs to take the copies of all others away: an answer from the farthest, and a message to
    /// each. Those nearest to `core` answer while it fetches the line.
    fn invalidate(machine: &Machine, line: &Line, core: u32, traffic: &mut Traffic) -> Picoseconds {
        let (mut others, mut farthest) = (0, Distance::Within(0));
        for other in line.copies.iter().filter(|&other| other != core && line.owner != Some(other)) {
            others += 1;
            farthest = farthest.max(machine.distance(other, core));
        }
        traffic.invalidations += others;
        let answer = match farthest {
            Distance::Within(0) => 0,
            Distance::Within(level) => machine.level(level).transfer,
            Distance::Across(hops) => Self::from_afar(machine, hops),
        };
        answer + machine.costs().invalidation * others
    }
}
