//! What a figure was measured on, and how much of the machine others had meanwhile.

use std::ffi::CStr;
use std::fs;

use poundlock_core::platform::Platform;
use serde::{Deserialize, Serialize};

use crate::affinity;

/// The machine, the build and the command behind a set of figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// CPUs that the benchmark could use.
    pub cpus: usize,
    /// Nodes of the machine's memory that those CPUs belong to.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Whether a hypervisor lies below.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: String,
    /// The C library's version.
    pub glibc: String,
    /// The commit of the build.
    pub commit: String,
    /// Whether the build was optimised: figures of one that was not mean nothing.
    pub optimised: bool,
    /// The command line.
    pub command: String,
    /// The one-minute load average at the start.
    pub load_average: f64,
    /// The nice value of the command.
    pub nice: i32,
    /// The nice value of its autogroup, where the kernel schedules by those: against other sessions it is
    /// this one that counts.
    pub autogroup_nice: Option<i32>,
}

impl Machine {
    /// Describes this machine; `command` is the command line that asked for the figures.
    pub fn describe(command: &str) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        // SAFETY: the function takes nothing and returns a static string.
        let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        let load = read("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok());
        Machine {
            cpu: cpu_model(&cpuinfo),
            cpus: affinity::allowed().map_or(0, |cpus| cpus.len()),
            nodes: poundlock_linux::Linux::nodes(),
            virtual_machine: has_flag(&cpuinfo, "hypervisor"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            glibc: glibc.to_string_lossy().into_owned(),
            commit: env!("POUNDLOCK_COMMIT").to_owned(),
            optimised: !cfg!(debug_assertions),
            command: command.to_owned(),
            load_average: load.unwrap_or(f64::NAN),
            // SAFETY: a plain query about the calling process.
            nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) },
            autogroup_nice: autogroup_nice(&read("/proc/self/autogroup")),
        }
    }

    /// The description as labelled lines.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            (
                "CPU",
                format!(
                    "{}, {} CPU{}{}{}",
                    self.cpu,
                    self.cpus,
                    if self.cpus == 1 { "" } else { "s" },
                    if self.nodes == 1 { String::new() } else { format!(" of {} nodes", self.nodes) },
                    if self.virtual_machine { ", virtual machine" } else { "" }
                ),
            ),
            ("Kernel", self.kernel.clone()),
            ("glibc", self.glibc.clone()),
            ("Poundlock", self.commit.clone()),
            ("Command", self.command.clone()),
            ("Load average at the start", format!("{:.2}", self.load_average)),
        ];
        if self.nice != 0 || self.autogroup_nice.is_some_and(|nice| nice != 0) {
            let autogroup =
                self.autogroup_nice.map_or_else(String::new, |nice| format!(", its autogroup {nice}"));
            lines.push(("Nice", format!("{}{autogroup}", self.nice)));
        }
        if !self.optimised {
            lines.push(("Build", "NOT OPTIMISED: these figures mean nothing".to_owned()));
        }
        lines
    }
}

/// What results say of nodes that are older than the question.
fn one() -> u32 {
    1
}

fn cpu_model(cpuinfo: &str) -> String {
    let value = |key: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    // x86 names its model; other architectures have less to say.
    value("model name")
        .or_else(|| value("Model"))
        .or_else(|| value("CPU part").map(|part| format!("{} part {part}", std::env::consts::ARCH)))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|word| word == flag))
}

/// The number at the end of, for example, `/autogroup-14 nice 0`.
fn autogroup_nice(line: &str) -> Option<i32> {
    line.trim().rsplit_once(" nice ")?.1.parse().ok()
}

/// CPU time that all processes of the machine have used so far, in nanoseconds; `None` if it does not say.
fn busy_ns() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    Some(busy_ticks(&stat)? * 1_000_000_000 / ticks_a_second()?)
}

fn ticks_a_second() -> Option<u64> {
    // SAFETY: a plain query.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&ticks| ticks > 0)
}

/// As many ticks of CPU time may be missing from one of two sums, or be in it too early.
const TICKS_WRONG: u64 = 4;

/// Ticks of the first line that are neither idle nor waiting for a disk.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
        .take(8)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    (fields.len() == 8).then(|| fields.iter().sum::<u64>() - fields[3] - fields[4])
}

/// From this share of the CPUs on others disturb a measurement.
const BUSY: f64 = 0.05;

/// What is wrong with a machine of whose CPUs others had this share meanwhile, if anything is.
pub fn busy_line(machine: &Machine, others: Option<f64>) -> Option<String> {
    let load = machine.load_average > 0.5 * machine.cpus as f64;
    let others = others.filter(|others| *others > BUSY);
    let had = others
        .map_or_else(String::new, |others| format!(", others had up to {:.0} % of the CPUs", others * 100.0));
    (load || others.is_some()).then(|| {
        format!(
            "BUSY MACHINE (load average {:.2} at the start, {} CPUs{had}): the figures are worth less.",
            machine.load_average, machine.cpus
        )
    })
}

/// The same of one run, whose beginning the load average says nothing about: an earlier run may have made it.
pub fn busy_run_line(others: Option<f64>, cpus: usize) -> Option<String> {
    let others = others.filter(|others| *others > BUSY)?;
    Some(format!(
        "BUSY MACHINE (others had {:.0} % of the {cpus} CPUs): the figures are worth less.",
        others * 100.0
    ))
}

/// Measures the share of the CPUs that went to somebody else.
pub struct Others {
    busy: Option<u64>,
    start: u64,
}

impl Others {
    /// Starts measuring.
    pub fn watch() -> Others {
        Others { busy: busy_ns(), start: crate::clock::now_ns() }
    }

    /// The share, 0 to 1, given that we used `own_ns` of CPU time since [`Others::watch`]. The kernel counts
    /// in ticks, so that a short measurement knows it only roughly.
    pub fn share(&self, own_ns: u64, cpus: usize) -> Option<f64> {
        let busy = busy_ns()?.checked_sub(self.busy?)?;
        let wall = crate::clock::now_ns() - self.start;
        Some((busy.saturating_sub(own_ns) as f64 / (wall as f64 * cpus.max(1) as f64)).clamp(0.0, 1.0))
    }

    /// The same, but what the kernel's ticks may be wrong by: of a run of any length it is true that others
    /// had this much.
    pub fn sure_share(&self, own_ns: u64, cpus: usize) -> Option<f64> {
        self.share(own_ns.saturating_add(TICKS_WRONG * 1_000_000_000 / ticks_a_second()?), cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str =
        "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor lahf_lm\n";

    #[test]
    fn reads_an_x86_description() {
        assert_eq!(cpu_model(X86), "AMD EPYC");
        assert!(has_flag(X86, "hypervisor"));
        assert!(!has_flag(X86, "hyper"));
    }

    #[test]
    fn an_arm_description_has_a_part_number() {
        assert!(cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n").ends_with("part 0xd0c"));
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn more_weight_than_others_is_shown() {
        assert_eq!(autogroup_nice("/autogroup-14 nice -20\n"), Some(-20));
        assert_eq!(autogroup_nice(""), None);
        let mut machine = Machine::describe("x");
        let shown = |machine: &Machine| {
            machine.lines().iter().find(|(label, _)| *label == "Nice").map(|(_, value)| value.clone())
        };
        (machine.nice, machine.autogroup_nice) = (0, Some(0));
        assert_eq!(shown(&machine), None);
        machine.autogroup_nice = Some(-20);
        assert_eq!(shown(&machine).as_deref(), Some("0, its autogroup -20"));
        (machine.nice, machine.autogroup_nice) = (-5, None);
        assert_eq!(shown(&machine).as_deref(), Some("-5"));
    }

    #[test]
    fn a_run_is_warned_of_by_what_others_had() {
        assert_eq!(busy_run_line(Some(0.04), 2), None);
        assert_eq!(busy_run_line(None, 2), None);
        assert!(busy_run_line(Some(0.25), 2).is_some_and(|line| line.contains("25 % of the 2 CPUs")));
        let others = Others { busy: Some(0), start: 0 };
        // All that the machine ever did is more than we did: unless we did all of it.
        assert!(others.sure_share(0, 1).is_none_or(|share| share > 0.0));
        assert!(others.sure_share(u64::MAX, 1).is_none_or(|share| share == 0.0));
    }

    #[test]
    fn idle_time_is_not_busy() {
        assert_eq!(busy_ticks("cpu  10 1 5 1000 50 2 3 4 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"), Some(25));
        assert_eq!(busy_ticks("cpu  10 1 5\n"), None);
        assert_eq!(busy_ticks(""), None);
    }

    #[test]
    fn describes_this_machine() {
        let machine = Machine::describe("poundlock bench");
        assert!(machine.cpus >= 1);
        assert!(machine.glibc.starts_with("2."), "{}", machine.glibc);
        assert!(!machine.commit.is_empty());
    }
}
