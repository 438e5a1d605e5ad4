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
    /// The cost of the interrupt that a waker sends to an idle CPU, in nanoseconds; left out where it is part
    /// of a wake-up.
    #[serde(default)]
    interrupt: Option<Figure>,
    costs: FiguresOfCosts,
    scheduler: FiguresOfScheduler,
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

            pub(crate) fn sources(&self) -> Vec<(&'static str, f64, &str)> {
                vec![$((stringify!($field), self.$field.value, self.$field.source.as_str()),)*]
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
const KNOWN: [&str; 6] = [
    include_str!("../machines/westmere-ex-8s.toml"),
    include_str!("../machines/westmere-ex-8x4.toml"),
    include_str!("../machines/ivybridge-ex-4s.toml"),
    include_str!("../machines/numaconnect-512.toml"),
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
        /// Access to a line that another core of the socket has written.
        transfer: NS,
        /// Access to a line that several cores have, one of them in the socket.
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

/// A machine to simulate.
#[derive(Clone, Debug)]
pub struct Machine {
    description: Description,
    costs: Costs,
    interrupt: Picoseconds,
    scheduler: Scheduler,
    /// Row by row.
    hops: Vec<u32>,
}

impl Machine {
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
        let interrupt = description.interrupt.as_ref().map_or(0.0, |figure| figure.value);
        let interrupt = checked(&description.name, "interrupt", interrupt, NS)?;
        Ok(Machine { description, costs, interrupt, scheduler, hops })
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
    pub fn sources(&self) -> Vec<(&'static str, f64, &str)> {
        let shape = self.description.source.as_str();
        let mut sources = vec![
            ("sockets", f64::from(self.description.sockets), shape),
            ("cores_a_socket", f64::from(self.description.cores_a_socket), shape),
            ("threads_a_core", f64::from(self.description.threads_a_core), shape),
        ];
        let interrupt = self.description.interrupt.as_ref();
        sources.extend(interrupt.map(|figure| ("interrupt", figure.value, figure.source.as_str())));
        sources.extend(self.description.costs.sources());
        sources.extend(self.description.scheduler.sources());
        sources
    }

    /// The same machine with another scheduler.
    pub(crate) fn with_scheduler(&self, scheduler: Scheduler) -> Machine {
        Machine { scheduler, ..self.clone() }
    }

    /// What a guest with that many CPUs sees that knows nothing of sockets and caches: one socket.
    pub(crate) fn flat(&self, cpus: u32) -> Machine {
        let whole = &self.description;
        let description = Description {
            sockets: 1,
            cores_a_socket: cpus,
            threads_a_core: 1,
            hops: Vec::new(),
            ..whole.clone()
        };
        Machine { description, hops: vec![0], ..self.clone() }
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

    /// Sockets, each a node with memory of its own.
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
    pub fn node_of_core(&self, core: u32) -> u32 {
        core / self.description.cores_a_socket
    }

    /// The socket of a CPU.
    pub fn node_of(&self, cpu: u32) -> u32 {
        self.node_of_core(self.core_of(cpu))
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
