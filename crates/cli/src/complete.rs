//! Completion of what is typed in a shell: the shell asks this command each time, so that names of locks,
//! machines, semaphore arrays and runs under measurement are those that there are.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;

use clap::{Arg, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use poundlock_core::semarray::Scheme;
use poundlock_names::RwLocks;
use poundlock_semarray::{self as semarray, Listed, Which};

use crate::{check, locks, semaphores, stat, who};

/// By this variable a shell asks. Not clap's own `COMPLETE`, which may be in the environment for other
/// reasons.
const VARIABLE: &str = "POUNDLOCK_COMPLETE";

/// Answers a shell that asks, and ends; else returns at once.
pub(crate) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(move || with_candidates(command())).var(VARIABLE).complete();
}

/// A script for each shell, with its file below a prefix's `share`.
pub(crate) fn scripts() -> [(&'static str, String); 3] {
    [
        ("bash-completion/completions/poundlock", bash()),
        ("zsh/site-functions/_poundlock", zsh()),
        ("fish/vendor_completions.d/poundlock.fish", fish()),
    ]
}

fn registration(shell: &dyn EnvCompleter) -> String {
    let mut script = Vec::new();
    // Writing to a vector does not fail.
    let _ = shell.write_registration(VARIABLE, "poundlock", "poundlock", "poundlock", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

// What stands behind `--` is another program's command line, whose own completion the shell knows.

fn bash() -> String {
    registration(&Bash)
        + r#"_poundlock() {
    local i
    if declare -F _command_offset >/dev/null; then
        for ((i = 1; i < COMP_CWORD; i++)); do
            if [[ ${COMP_WORDS[i]} == -- ]]; then
                compopt +o nospace
                _command_offset $((i + 1))
                return
            fi
        done
    fi
    _clap_complete_poundlock "$@"
}
complete -o nospace -o bashdefault -F _poundlock poundlock
"#
}

fn zsh() -> String {
    registration(&Zsh)
        + r#"
_poundlock_or_program() {
    local -i end=${words[(i)--]}
    if ((end < CURRENT)); then
        shift $end words
        ((CURRENT -= end))
        _normal
    else
        _clap_dynamic_completer_poundlock "$@"
    fi
}
compdef _poundlock_or_program poundlock
# As zsh loads the file when it is first needed, that is now.
if [[ ${funcstack[1]} == _poundlock ]]; then
    _poundlock_or_program "$@"
fi
"#
}

fn fish() -> String {
    registration(&Fish)
        + r#"complete --command poundlock --condition 'contains -- -- (commandline --current-process --tokenize --cut-at-cursor)' --exclusive --arguments '(complete --do-complete (string replace --regex "^.*? -- +" "" -- (commandline --current-process --cut-at-cursor | string collect)))'
"#
}

/// The command with the values that its options take.
fn with_candidates(command: Command) -> Command {
    fn below(command: Command, of: fn(Arg) -> Arg) -> Command {
        command.mut_args(of).mut_subcommands(|command| below(command, of))
    }
    command.mut_subcommands(|command| match command.get_name() {
        #[cfg(feature = "sim")]
        "sim" => below(command, simulated::candidates),
        // The contenders of each benchmark are its own.
        "bench" => command,
        _ => below(command, candidates),
    })
}

fn candidates(arg: Arg) -> Arg {
    let list = |arg: Arg, list: fn() -> Vec<CompletionCandidate>| arg.add(ArgValueCandidates::new(list));
    match arg.get_id().as_str() {
        "command" => arg.add(ArgValueCompleter::new(Program)),
        "lock" => arg.add(ArgValueCompleter::new(Locks)),
        "rwlock" => list(arg, || RwLocks::ALL.map(|choice| candidate(choice.name(), "")).into()),
        "kind" => arg.add(ArgValueCompleter::new(Kinds)),
        "on_deadlock" => {
            list(arg, || vec![candidate("report", "and go on"), candidate("end", "with status 98")])
        }
        "semaphores" => arg.add(ArgValueCompleter::new(Arrays)),
        "report" | "ids" => list(arg, || arrays(|array| array.id.to_string())),
        "key" => list(arg, || arrays(|array| semaphores::key(array.settings.key))),
        "read" => list(arg, runs),
        "pid" => arg.add(ArgValueCompleter::new(Processes)),
        _ => arg,
    }
}

fn candidate(name: &str, about: &str) -> CompletionCandidate {
    CompletionCandidate::new(name).help((!about.is_empty()).then(|| about.to_owned().into()))
}

/// Names that begin with what was typed, behind the comma if there is one.
fn beginning(typed: &OsStr, names: impl Iterator<Item = CompletionCandidate>) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let before = typed.rfind(',').map_or("", |comma| &typed[..=comma]);
    let rest = &typed[before.len()..];
    let fits = |name: &CompletionCandidate| name.get_value().to_string_lossy().starts_with(rest);
    names.filter(fits).map(|name| name.add_prefix(before)).collect()
}

/// What `--lock` takes: a mutex, a spinlock, or both.
struct Locks;

impl ValueCompleter for Locks {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        beginning(typed, locks::all().map(|(name, about)| candidate(name, about)))
    }
}

/// What `--kind` takes: names with commas between them, and those to leave out with a hyphen in front.
struct Kinds;

impl ValueCompleter for Kinds {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let last = typed.to_str().map_or("", |typed| typed.rsplit(',').next().unwrap_or_default());
        let out = if last.starts_with('-') { "-" } else { "" };
        let names = std::iter::once(("all", "every kind")).chain(check::kinds());
        beginning(typed, names.map(|(name, about)| candidate(&format!("{out}{name}"), about)))
    }
}

/// What `--semaphores` takes: whose are ours, and how new ones work.
struct Arrays;

impl ValueCompleter for Arrays {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        if typed.to_string_lossy().contains(',') {
            beginning(typed, Scheme::ALL.iter().map(|scheme| candidate(scheme.name(), "")))
        } else {
            let whose = [
                (Which::Ours, "those that no other user can open"),
                (Which::All, "all of them"),
                (Which::Kernel, "none"),
            ];
            beginning(typed, whose.into_iter().map(|(which, about)| candidate(which.name(), about)))
        }
    }
}

/// A program and its arguments.
struct Program;

impl ValueCompleter for Program {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, typed)
    }

    fn complete_at(&self, index: usize, typed: &OsStr) -> Vec<CompletionCandidate> {
        let name = typed.to_string_lossy();
        if index > 0 || name.is_empty() || name.contains('/') {
            return PathCompleter::any().complete(typed);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let mut names: Vec<_> = env::split_paths(&path)
            .filter_map(|directory| directory.read_dir().ok())
            .flat_map(|entries| entries.filter_map(io::Result::ok))
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&*name))
            .filter(|entry| {
                entry
                    .path()
                    .metadata()
                    .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
            })
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        names.dedup();
        names.into_iter().map(CompletionCandidate::new).collect()
    }
}

/// The arrays that there are.
fn arrays(name: fn(&Listed) -> String) -> Vec<CompletionCandidate> {
    let mut found = Vec::new();
    semarray::list(|array| {
        let about = format!("key {}, {} semaphores", semaphores::key(array.settings.key), array.semaphores);
        found.push(candidate(&name(&array), &about));
    });
    found
}

/// Directories of runs under measurement, and of those whose `stat` was killed, with their processes.
fn runs() -> Vec<CompletionCandidate> {
    let runs = stat::runs().into_iter();
    runs.map(|(path, about)| CompletionCandidate::new(path).help(Some(about.into()))).collect()
}

/// The processes that may be looked into, with their names; several with commas.
struct Processes;

impl ValueCompleter for Processes {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        beginning(typed, who::processes().into_iter().map(|(pid, name)| candidate(&pid.to_string(), &name)))
    }
}

/// What there is to simulate.
#[cfg(feature = "sim")]
mod simulated {
    use clap::Arg;
    use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
    use poundlock_sim::{Hypervisor, Machine, experiment::Work, locks, published};

    use super::candidate;

    pub(super) fn candidates(arg: Arg) -> Arg {
        let list: fn() -> Vec<CompletionCandidate> = match arg.get_id().as_str() {
            "lock" => || locks::names().map(|name| candidate(name, "")).collect(),
            "machine" => machines,
            "guest" => {
                || Hypervisor::known().iter().map(|known| candidate(known.name(), known.about())).collect()
            }
            "workload" => || Work::names().iter().map(|name| candidate(name, "")).collect(),
            "table" => tables,
            _ => return arg,
        };
        arg.add(ArgValueCandidates::new(list))
    }

    fn machines() -> Vec<CompletionCandidate> {
        let known = Machine::known();
        let known = known.iter().map(|machine| candidate(machine.name(), machine.about()));
        known.chain([candidate("here", "this one")]).collect()
    }

    fn tables() -> Vec<CompletionCandidate> {
        let tables = published::tables();
        let tables = tables.iter().map(|table| candidate(table.name, table.about));
        tables.chain([candidate("all", "every one of them")]).collect()
    }
}
