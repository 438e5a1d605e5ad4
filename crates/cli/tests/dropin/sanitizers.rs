//! Programs built with ThreadSanitizer and AddressSanitizer, whose runtimes wrap the lock calls and pass them
//! on. They lie in the program, and so before our library, or in a shared library.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::program::{FLAGS, expect_silent_success, sources};
use crate::support::{LIMIT, missing, need, poundlock, run_limited, scratch};

/// A compiler, its package, and that of its runtimes.
const GCC: [&str; 3] = ["gcc", "gcc", "libtsan2 libasan8"];
const CLANG: [&str; 3] = ["clang", "clang", "libclang-rt-dev"];

struct Sanitized {
    executable: PathBuf,
    name: String,
}

impl Sanitized {
    /// Builds the program. `None` if what it takes is not installed.
    #[track_caller]
    fn build([compiler, package, runtimes]: [&str; 3], sanitizer: &str, flags: &[&str]) -> Option<Self> {
        need(compiler, package)?;
        let sanitizer = format!("-fsanitize={sanitizer}");
        let name = format!("{compiler} {sanitizer} {}", flags.join(" "));
        let compile = |source: &Path, to: &Path| {
            let mut cmd = Command::new(compiler);
            cmd.arg("-std=gnu11").args(FLAGS).arg(&sanitizer).args(flags).arg("-o").arg(to).arg(source);
            run_limited(&mut cmd, LIMIT)
        };
        let directory = scratch();
        let (trial, executable) = (directory.join("trial.c"), directory.join("sanitized"));
        std::fs::write(&trial, "int main(void) { return 0; }\n").expect("a file can be written");
        if !compile(&trial, &directory.join("trial")).status.success() {
            missing(&format!("the runtime for {name}"), &format!("apt-get install {runtimes}"));
            return None;
        }
        let output = compile(&sources().join("sanitized.c"), &executable);
        assert!(output.status.success(), "{name}:\n{}", String::from_utf8_lossy(&output.stderr));
        Some(Sanitized { executable, name })
    }

    fn run(&self, how: &[&str], argument: Option<&str>) -> Output {
        let mut cmd = if how.is_empty() { Command::new(&self.executable) } else { poundlock() };
        if !how.is_empty() {
            cmd.args(how).arg("--").arg(&self.executable);
        }
        cmd.args(argument).env("UBSAN_OPTIONS", "").env("TSAN_OPTIONS", "").env("ASAN_OPTIONS", "");
        // ThreadSanitizer's older runtimes know few layouts of memory, and fail now and then where it is laid
        // out at random.
        // SAFETY: personality is one system call.
        unsafe {
            cmd.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                Ok(())
            });
        }
        run_limited(&mut cmd, LIMIT)
    }

    /// Nothing is found in the program as it is, and the bug is found in the one that has it, with each lock.
    fn check(&self, bug: &str, report: &str) {
        let locks = ["poundlock", "any-negative", "baseline", "handoff"].map(|lock| ["run", "--lock", lock]);
        for how in std::iter::once(&[][..]).chain(locks.iter().map(|how| &how[..])) {
            let what = format!("{}, {how:?}", self.name);
            expect_silent_success(&what, &self.run(how, None));
            let output = self.run(how, Some(bug));
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && text.contains(report), "{what}: no {bug} was found\n{text}");
        }
        for lock in ["poundlock", "glibc"] {
            let output = self.run(&["stat", "--lock", lock], None);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !text.contains("Sanitizer"), "{}, stat: {text}", self.name);
        }
    }
}

const RACE: [&str; 2] = ["race", "ThreadSanitizer: data race"];
const OVERFLOW: [&str; 2] = ["overflow", "AddressSanitizer: heap-buffer-overflow"];

macro_rules! sanitizers {
    ($($name:ident: $compiler:ident, $sanitizer:literal, $flags:expr, $bug:ident;)*) => {$(
        #[test]
        fn $name() {
            if let Some(program) = Sanitized::build($compiler, $sanitizer, &$flags) {
                program.check($bug[0], $bug[1]);
            }
        }
    )*};
}

sanitizers! {
    gcc_thread_in_a_library: GCC, "thread", [], RACE;
    gcc_thread_in_the_program: GCC, "thread", ["-static-libtsan"], RACE;
    gcc_address_in_a_library: GCC, "address", [], OVERFLOW;
    gcc_address_in_the_program: GCC, "address", ["-static-libasan"], OVERFLOW;
    clang_thread: CLANG, "thread", [], RACE;
    clang_address: CLANG, "address", [], OVERFLOW;
    clang_address_in_a_library: CLANG, "address", ["-shared-libsan", &clangs_directory()], OVERFLOW;
}

/// Where clang's shared runtimes are, which is no place that the dynamic linker looks at.
fn clangs_directory() -> String {
    let output = Command::new("clang").arg("-print-file-name=libclang_rt.asan-x86_64.so").output();
    let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    let path = PathBuf::from(path.unwrap_or_default());
    format!("-Wl,-rpath,{}", path.parent().unwrap_or(Path::new("/")).display())
}
