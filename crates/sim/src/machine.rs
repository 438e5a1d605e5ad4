//! Machines, and the files that describe them.

use serde::Deserialize;

/// Simulated time.
pub type Picoseconds = u64;

/// In picoseconds.
pub const NANOSECOND: Picoseconds = 1_000;
/// In picoseconds.
pub const MICROSECOND: Picoseconds = 1_000_000;

/// What is wrong with a description.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no description.
    #[error("{0}")]
    Syntax(String),
    /// A number makes no sense.
    #[error("{what} of machine '{machine}' {wrong}")]
    Number {
        /// The description's name.
        machine: String,
        /// The number's name.
        what: String,
        /// Why.
        wrong: String,
    },
}

/// A number, and its source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// Nanoseconds, or what the field says.
    pub(crate) value: f64,
    /// A data sheet, a paper, a measurement, or "fitted" and to what.
    pub(crate) source: String,
}

/// A file of `machines/`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: String,
    about: String,
    sockets: u32,
    cores_a_socket: u32,
    threads_a_core: u32,
    /// The source of the shape.
    source: String,
    /// Links between sockets from one to another, row by row; left out if each is linked with each.
    #[serde(default)]
    hops: Vec<Vec<u32>>,
    /// Cores of a socket that are nearer to each other than to its others, smallest groups first.
    #[serde(default)]
    groups: Vec<Group>,
    /// What the locks take for a node: `socket`, which is what Linux says unless it is told otherwise, or the
    /// name of a group.
    #[serde(default = "socket")]
    node: String,
    /// The cost of the interrupt that a waker sends to an idle CPU, in nanoseconds; left out where it is part
    /// of a wake-up.
    #[serde(default)]
    interrupt: Option<Figure>,
    costs: FiguresOfCosts,
    scheduler: FiguresOfScheduler,
    /// Left out where a CPU that has just become idle is as any other idle one.
    #[serde(default)]
    idle: Option<FiguresOfIdle>,
    /// Left out where the scheduler is the completely fair one.
    #[serde(default)]
    eevdf: Option<FiguresOfEevdf>,
    /// Left out where none takes long.
    #[serde(default)]
    interrupts: Option<FiguresOfInterrupts>,
}

fn socket() -> String {
    Machine::SOCKET.to_owned()
}

/// One level of distance within a socket: its cores are split into groups of this size.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    cores: u32,
    /// The source of the shape.
    source: String,
    /// As [`Costs::transfer`], between cores of one group, in nanoseconds.
    transfer: Figure,
    /// As [`Costs::shared`].
    shared: Figure,
}

impl Group {
    /// The name of one of its numbers, beside those of the whole machine.
    fn of(&self, what: &str) -> String {
        format!("{what} of group '{}'", self.name)
    }
}

/// What accesses cost between cores of a socket that are so near to each other, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The size of the group that has both cores.
    cores: u32,
    pub(crate) transfer: Picoseconds,
    pub(crate) shared: Picoseconds,
}

/// How far two cores are from each other. Nearer ones are less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// In one socket: the number of the level, smallest groups first.
    Within(usize),
    /// In two sockets: the links between them.
    Across(u32),
}

macro_rules! figures {
    (
        $(#[$doc:meta])* $figures:ident => $(#[$out:meta])* $vis:vis struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $unit:expr,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $figures { $($field: $crate::machine::Figure,)* }

        $(#[$out])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: u64,)* }

        impl $figures {
            pub(crate) fn values(&self, machine: &str) -> Result<$name, $crate::machine::Error> {
                Ok($name {
                    $($field: $crate::machine::checked(machine, stringify!($field), self.$field.value, $unit)?,)*
                })
            }

            /// Sets the number of this name, if there is one.
            pub(crate) fn set(&mut self, name: &str, value: f64) {
                match name {
                    $(stringify!($field) => self.$field.value = value,)*
                    _ => {}
                }
            }

            pub(crate) fn sources(&self) -> Vec<(String, f64, &str)> {
                vec![$((stringify!($field).to_owned(), self.$field.value, self.$field.source.as_str()),)*]
            }
        }
    };
}

pub(crate) use figures;

pub(crate) fn checked(machine: &str, what: &str, value: f64, unit: f64) -> Result<u64, Error> {
    // A day, in picoseconds: more is a mistake.
    if value.is_finite() && (0.0..=8.64e16).contains(&(value * unit)) {
        Ok((value * unit).round() as u64)
    } else {
        Err(Error::Number { machine: machine.into(), what: what.into(), wrong: format!("cannot be {value}") })
    }
}

/// The machines that are part of Poundlock.
const KNOWN: [&str; 9] = [
    include_str!("../machines/westmere-ex-8s.toml"),
    include_str!("../machines/westmere-ex-8x4.toml"),
    include_str!("../machines/ivybridge-ex-4s.toml"),
    include_str!("../machines/numaconnect-512.toml"),
    include_str!("../machines/epyc-9654-2s.toml"),
    include_str!("../machines/xeon-8480-2s.toml"),
    include_str!("../machines/graviton4.toml"),
    include_str!("../machines/phenom-4.toml"),
    include_str!("../machines/osv-4.toml"),
];

pub(crate) const NS: f64 = 1e3;
const PLAIN: f64 = 1.0;

figures! {
    /// Nanoseconds, except where noted.
    FiguresOfCosts =>
    /// What accesses cost, in picoseconds.
    pub struct Costs {
        /// Access to a line that the core has.
        hit: NS,
        /// An atomic read-modify-write, beyond that.
        atomic: NS,
        /// Access to a line that another core of the socket has written, if no group has both.
        transfer: NS,
        /// Access to a line that several cores have, one of them in the socket, if no group has it too.
        shared: NS,
        /// Access to a line that a core of the next socket has.
        remote: NS,
        /// For each further link.
        hop: NS,
        /// Access to a line that no core has.
        memory: NS,
        /// For each core that loses its copy to a writer.
        invalidation: NS,
        /// How much of a load's transfer keeps the line from going on, in 256ths.
        load_share: PLAIN,
        /// A load that is wider than the store before it, to the same word.
        forwarding: NS,
        /// One pause in a spin loop.
        pause: NS,
        /// The speed of a hardware thread whose sibling runs too, in 256ths.
        sibling: PLAIN,
    }
}

figures! {
    /// Nanoseconds.
    FiguresOfScheduler =>
    /// What the scheduler does, and what it costs, in picoseconds.
    pub struct Scheduler {
        /// From one thread of a CPU to the next.
        switch: NS,
        /// A system call that neither sleeps nor wakes.
        syscall: NS,
        /// What a wake-up costs the waker.
        wake: NS,
        /// From a wake-up until an idle CPU runs the thread.
        wake_latency: NS,
        /// Cold caches, after a thread has gone to another CPU.
        migration: NS,
        /// The period in which every thread of a CPU runs once, if there are few.
        latency: NS,
        /// The least that a thread runs before another is given its CPU.
        granularity: NS,
        /// How much less CPU time than the running thread a woken one must have had to take its CPU at once.
        wakeup_granularity: NS,
    }
}

figures! {
    /// Nanoseconds.
    FiguresOfIdle =>
    /// What the scheduler knows of idle CPUs, in picoseconds.
    pub(crate) struct Idle {
        /// For so long an idle CPU still looks for work,
        awake: NS,
        /// and a wake-up costs the waker that,
        wake: NS,
        /// and it takes that until the CPU runs the thread.
        wake_latency: NS,
        /// Of what it takes where the CPU no longer looks for work, the thread is charged so much as CPU
        /// time.
        charged: NS,
        /// The share of what a wake-up takes and costs, in 256ths, that is left to chance: exponentially
        /// distributed.
        chance: PLAIN,
        /// What a wake-up costs the waker if the thread waits for its CPU.
        queue: NS,
        /// From a wake-up until a busy CPU is interrupted to run the thread, if it is to run at once.
        interrupt: NS,
        /// From such a wake-up on no thread of that CPU gives it away for so long: the waker has locked its
        /// queue until the interrupt is sent, and then the interrupt comes.
        locked: NS,
    }
}

figures! {
    /// Nanoseconds.
    FiguresOfEevdf =>
    /// The scheduler of Linux 6.6 and later, in picoseconds.
    pub(crate) struct Eevdf {
        /// How far ahead of a thread its virtual deadline lies.
        slice: NS,
        /// How often a CPU looks whether its thread has come to it.
        tick: NS,
        /// A thread that ran so short a time ago is not taken by another CPU that has none.
        hot: NS,
        /// A woken thread goes to its waker's CPU, though others are idle, as long as the CPU and the thread
        /// used less of one CPU's time of late than this, in 256ths. No released kernel does that; some
        /// kernels for guests do, whose idle CPUs take long to wake up.
        pack: PLAIN,
    }
}

figures! {
    /// Nanoseconds.
    FiguresOfInterrupts =>
    /// Ticks of the timer and the like, in picoseconds: what takes a CPU from its thread and gives it back.
    pub(crate) struct Interrupts {
        /// From one to the next, on average.
        every: NS,
        /// As many take more than this as less.
        takes: NS,
    }
}

/// A machine to simulate.
#[derive(Clone, Debug)]
pub struct Machine {
    description: Description,
    costs: Costs,
    interrupt: Picoseconds,
    scheduler: Scheduler,
    idle: Option<Idle>,
    eevdf: Option<Eevdf>,
    interrupts: Option<Interrupts>,
    /// Row by row.
    hops: Vec<u32>,
    /// Within a socket, smallest groups first; the last is the whole socket.
    levels: Vec<Level>,
    /// The cores of what the locks take for a node.
    node: u32,
}

impl Machine {
    /// What [`Machine::node_is`] calls whole sockets.
    pub const SOCKET: &str = "socket";

    /// The machines that are part of Poundlock, large ones first.
    ///
    /// # Panics
    /// If one of them makes no sense, which a test excludes.
    pub fn known() -> Vec<Machine> {
        let parse = |text: &&str| Machine::parse(text).unwrap_or_else(|error| panic!("{error}"));
        KNOWN.iter().map(parse).collect()
    }

    /// Reads a description.
    ///
    /// # Errors
    /// If it is not a description, or its numbers make no sense.
    pub fn parse(text: &str) -> Result<Machine, Error> {
        Machine::of(toml::from_str(text).map_err(|error| Error::Syntax(error.message().to_owned()))?)
    }

    /// The same machine with another value of a number, in its file's unit.
    ///
    /// # Errors
    /// If it makes no sense.
    pub(crate) fn with(&self, name: &str, value: f64) -> Result<Machine, Error> {
        let mut description = self.description.clone();
        description.costs.set(name, value);
        description.scheduler.set(name, value);
        if let (Some(idle), Some(name)) = (&mut description.idle, name.strip_suffix(" of idle")) {
            idle.set(name, value);
        }
        if let (Some(eevdf), Some(name)) = (&mut description.eevdf, name.strip_suffix(" of eevdf")) {
            eevdf.set(name, value);
        }
        if let (Some(interrupts), Some(name)) =
            (&mut description.interrupts, name.strip_suffix(" of interrupts"))
        {
            interrupts.set(name, value);
        }
        for group in &mut description.groups {
            if name == group.of("transfer") {
                group.transfer.value = value;
            } else if name == group.of("shared") {
                group.shared.value = value;
            }
        }
        Machine::of(description)
    }

    fn of(description: Description) -> Result<Machine, Error> {
        let costs = description.costs.values(&description.name)?;
        let scheduler = description.scheduler.values(&description.name)?;
        let number = |what: &str, wrong: &str| {
            Err(Error::Number { machine: description.name.clone(), what: what.into(), wrong: wrong.into() })
        };
        for (what, value, most) in [
            ("sockets", description.sockets, 256),
            ("cores_a_socket", description.cores_a_socket, 1024),
            ("threads_a_core", description.threads_a_core, 8),
        ] {
            if !(1..=most).contains(&value) {
                return number(what, &format!("must lie between 1 and {most}"));
            }
        }
        if !(1..=256).contains(&costs.sibling) {
            return number("sibling", "must lie between 1 and 256");
        }
        if costs.load_share > 256 {
            return number("load_share", "must lie between 0 and 256");
        }
        if costs.pause == 0 || costs.hit == 0 {
            return number("pause or hit", "must take time");
        }
        if description.idle.as_ref().is_some_and(|idle| idle.chance.value > 256.0) {
            return number("chance", "must lie between 0 and 256");
        }
        if scheduler.granularity == 0 {
            return number("granularity", "must take time");
        }
        let sockets = description.sockets as usize;
        let hops = if description.hops.is_empty() {
            (0..sockets * sockets).map(|at| u32::from(at / sockets != at % sockets)).collect()
        } else {
            let square =
                description.hops.len() == sockets && description.hops.iter().all(|row| row.len() == sockets);
            let row = |from: usize, to: usize| description.hops[from][to];
            if !square
                || (0..sockets)
                    .any(|a| (0..sockets).any(|b| (row(a, b) == 0) != (a == b) || row(a, b) != row(b, a)))
            {
                return number(
                    "hops",
                    "must be as many rows as sockets, symmetric, and zero from each to itself alone",
                );
            }
            description.hops.concat()
        };
        let mut levels: Vec<Level> = Vec::new();
        for group in &description.groups {
            let inner = levels.last().map_or(1, |inner| inner.cores);
            if group.name == Machine::SOCKET
                || description.groups.iter().filter(|other| other.name == group.name).count() > 1
            {
                return number(&group.of("name"), "is another level's");
            }
            if group.cores <= inner || group.cores >= description.cores_a_socket {
                let most = description.cores_a_socket;
                return number(
                    &group.of("cores"),
                    &format!("must lie between {inner} and {most}, which others have"),
                );
            }
            if !group.cores.is_multiple_of(inner) || !description.cores_a_socket.is_multiple_of(group.cores) {
                return number(
                    &group.of("cores"),
                    "must be so many that the next level is made of whole groups",
                );
            }
            let figure =
                |field, figure: &Figure| checked(&description.name, &group.of(field), figure.value, NS);
            let (transfer, shared) = (figure("transfer", &group.transfer)?, figure("shared", &group.shared)?);
            levels.push(Level { cores: group.cores, transfer, shared });
        }
        let (transfer, shared) = (costs.transfer, costs.shared);
        levels.push(Level { cores: description.cores_a_socket, transfer, shared });
        let names: Vec<&str> =
            description.groups.iter().map(|group| group.name.as_str()).chain([Machine::SOCKET]).collect();
        let Some(node) = names.iter().position(|name| *name == description.node) else {
            return number(
                "node",
                &format!("cannot be '{}': there is {}", description.node, names.join(", ")),
            );
        };
        let node = levels[node].cores;
        let interrupt = description.interrupt.as_ref().map_or(0.0, |figure| figure.value);
        let interrupt = checked(&description.name, "interrupt", interrupt, NS)?;
        let idle = description.idle.as_ref().map(|idle| idle.values(&description.name)).transpose()?;
        let eevdf = description.eevdf.as_ref().map(|eevdf| eevdf.values(&description.name)).transpose()?;
        if eevdf.is_some_and(|eevdf| eevdf.tick == 0 || eevdf.slice == 0) {
            return number("tick or slice", "must take time");
        }
        let interrupts = description.interrupts.as_ref();
        let interrupts = interrupts.map(|figures| figures.values(&description.name)).transpose()?;
        if interrupts.is_some_and(|interrupts| interrupts.every == 0) {
            return number("every", "must take time");
        }
        Ok(Machine { description, costs, interrupt, scheduler, idle, eevdf, interrupts, hops, levels, node })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// What it is, in a line.
    pub fn about(&self) -> &str {
        &self.description.about
    }

    /// Each of its numbers, by name, in the file's units, with its source.
    pub fn sources(&self) -> Vec<(String, f64, &str)> {
        let shape = self.description.source.as_str();
        let mut sources = vec![
            ("sockets".to_owned(), f64::from(self.description.sockets), shape),
            ("cores_a_socket".to_owned(), f64::from(self.description.cores_a_socket), shape),
            ("threads_a_core".to_owned(), f64::from(self.description.threads_a_core), shape),
        ];
        for group in &self.description.groups {
            sources.push((group.of("cores"), f64::from(group.cores), group.source.as_str()));
            for (what, figure) in [("transfer", &group.transfer), ("shared", &group.shared)] {
                sources.push((group.of(what), figure.value, figure.source.as_str()));
            }
        }
        let interrupt = self.description.interrupt.as_ref();
        sources
            .extend(interrupt.map(|figure| ("interrupt".to_owned(), figure.value, figure.source.as_str())));
        sources.extend(self.description.costs.sources());
        sources.extend(self.description.scheduler.sources());
        let idle = self.description.idle.as_ref().map(|idle| ("idle", idle.sources()));
        let eevdf = self.description.eevdf.as_ref().map(|eevdf| ("eevdf", eevdf.sources()));
        let interrupts = self.description.interrupts.as_ref().map(|table| ("interrupts", table.sources()));
        for (table, figures) in idle.into_iter().chain(eevdf).chain(interrupts) {
            sources.extend(
                figures
                    .into_iter()
                    .map(|(name, value, source)| (format!("{name} of {table}"), value, source)),
            );
        }
        sources
    }

    /// The same machine with another scheduler.
    pub(crate) fn with_scheduler(&self, scheduler: Scheduler) -> Machine {
        Machine { scheduler, ..self.clone() }
    }

    /// The same machine with that many CPUs, which are cores of one socket: as a guest sees it that knows
    /// nothing of sockets and caches.
    #[must_use]
    pub fn flat(&self, cpus: u32) -> Machine {
        let whole = &self.description;
        let description = Description {
            sockets: 1,
            cores_a_socket: cpus,
            threads_a_core: 1,
            hops: Vec::new(),
            groups: Vec::new(),
            node: socket(),
            ..whole.clone()
        };
        let (transfer, shared) = (self.costs.transfer, self.costs.shared);
        let levels = vec![Level { cores: cpus, transfer, shared }];
        Machine { description, hops: vec![0], levels, node: cpus, ..self.clone() }
    }

    /// The same machine with fewer sockets, or without its cores' second threads.
    ///
    /// # Errors
    /// If it has fewer.
    pub fn part(&self, sockets: u32, threads_a_core: u32) -> Result<Machine, Error> {
        let whole = &self.description;
        for (what, part, whole) in
            [("sockets", sockets, whole.sockets), ("threads_a_core", threads_a_core, whole.threads_a_core)]
        {
            if !(1..=whole).contains(&part) {
                return Err(Error::Number {
                    machine: self.name().into(),
                    what: what.into(),
                    wrong: format!("must lie between 1 and {whole}"),
                });
            }
        }
        let before = whole.sockets;
        let hops = (0..sockets)
            .flat_map(|a| (0..sockets).map(move |b| (a, b)))
            .map(|(a, b)| self.hops[(a * before + b) as usize]);
        Ok(Machine {
            hops: hops.collect(),
            description: Description { sockets, threads_a_core, ..whole.clone() },
            ..self.clone()
        })
    }

    /// The same machine with another answer to what the locks take for a node: [`Machine::SOCKET`], or the
    /// name of one of its groups of cores.
    ///
    /// # Errors
    /// If it has no such group.
    pub fn with_node(&self, name: &str) -> Result<Machine, Error> {
        Machine::of(Description { node: name.to_owned(), ..self.description.clone() })
    }

    pub(crate) fn idle(&self) -> Option<&Idle> {
        self.idle.as_ref()
    }

    pub(crate) fn eevdf(&self) -> Option<Eevdf> {
        self.eevdf
    }

    pub(crate) fn interrupts(&self) -> Option<Interrupts> {
        self.interrupts
    }

    /// What the locks take for a node.
    pub fn node_is(&self) -> &str {
        &self.description.node
    }

    /// Sockets, each with memory of its own.
    pub fn sockets(&self) -> u32 {
        self.description.sockets
    }

    /// Hardware threads of a core.
    pub fn threads_a_core(&self) -> u32 {
        self.description.threads_a_core
    }

    /// Cores in all.
    pub fn cores(&self) -> usize {
        (self.description.sockets * self.description.cores_a_socket) as usize
    }

    /// CPUs in all: the hardware threads of all cores. Numbered as Linux does: first one of each core, then
    /// the others.
    pub fn cpus(&self) -> usize {
        self.cores() * self.description.threads_a_core as usize
    }

    /// Whether CPUs share cores.
    pub fn has_siblings(&self) -> bool {
        self.threads_a_core() > 1
    }

    /// The core of a CPU.
    pub fn core_of(&self, cpu: u32) -> u32 {
        cpu % self.cores() as u32
    }

    /// The socket of a core.
    pub fn socket_of_core(&self, core: u32) -> u32 {
        core / self.description.cores_a_socket
    }

    /// What the locks take for nodes: how many there are.
    pub fn nodes(&self) -> u32 {
        self.cores() as u32 / self.node
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: u32) -> u32 {
        self.core_of(cpu) / self.node
    }

    /// How many groups there are of cores that have their last cache in common: those of the first level of
    /// distance, or sockets if there is no other level.
    pub(crate) fn clusters(&self) -> u32 {
        self.cores() as u32 / self.levels[0].cores
    }

    /// The one of a CPU.
    pub(crate) fn cluster_of(&self, cpu: u32) -> u32 {
        self.core_of(cpu) / self.levels[0].cores
    }

    /// The socket of such a group.
    pub(crate) fn socket_of_cluster(&self, cluster: u32) -> u32 {
        self.socket_of_core(cluster * self.levels[0].cores)
    }

    /// How far two cores are from each other; a core from itself, as from the nearest.
    pub(crate) fn distance(&self, from: u32, to: u32) -> Distance {
        let sockets = (self.socket_of_core(from), self.socket_of_core(to));
        if sockets.0 != sockets.1 {
            return Distance::Across(self.hops(sockets.0, sockets.1));
        }
        let levels = self.levels.iter();
        let outer = levels.take_while(|level| from / level.cores != to / level.cores).count();
        Distance::Within(outer)
    }

    /// What accesses cost between cores of a socket, by the levels of [`Distance::Within`].
    pub(crate) fn level(&self, level: usize) -> &Level {
        &self.levels[level]
    }

    /// The links between two sockets.
    pub fn hops(&self, from: u32, to: u32) -> u32 {
        self.hops[(from * self.description.sockets + to) as usize]
    }

    /// What accesses cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What it costs a waker, beyond the wake-up, to interrupt a CPU that is idle.
    pub fn interrupt(&self) -> Picoseconds {
        self.interrupt
    }

    /// What the scheduler does.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}
