//! Whoever is watched goes on as if nothing had been.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{can_watch, class, leads_to, watched};
use crate::support::{compile_c, from_a_terminal, list};
use crate::who::{Target, command};

/// Threads hand a number around until they are told to stop, and then check that none was lost.
const RING: &str = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdatomic.h>\n#include <stdio.h>\n#include <unistd.h>\n\
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n\
    static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;\n\
    static long at, own[4]; static atomic_int stop;\n\
    static void await(void) { pthread_cond_wait(&turn, &lock); }\n\
    static void *work(void *n) { long me = (long)n; pthread_mutex_lock(&lock);\n\
    \twhile (!stop) { if (at % 4 == me) { at++; own[me]++; pthread_cond_broadcast(&turn);\n\
    \t\t\tpthread_mutex_unlock(&lock); usleep(300); pthread_mutex_lock(&lock); }\n\
    \t\telse await(); } // calls\n\
    \tpthread_cond_broadcast(&turn); pthread_mutex_unlock(&lock); return 0; }\n\
    int main(void) { pthread_t threads[4]; char line[8];\n\
    \tfor (long n = 0; n < 4; n++) pthread_create(&threads[n], 0, work, (void *)n);\n\
    \tputs(\"ready\"); fflush(stdout); while (fgets(line, 8, stdin)) { }\n\
    \tstop = 1; for (int n = 0; n < 4; n++) pthread_join(threads[n], 0);\n\
    \tlong sum = own[0] + own[1] + own[2] + own[3];\n\
    \tputs(sum == at && at > 0 && own[0] - own[3] <= 1 ? \"done\" : \"wrong\"); return sum != at; }\n";

#[test]
fn a_program_under_load_does_not_notice() {
    if !can_watch() {
        return;
    }
    let mut target = Target::ready(&mut Command::new(compile_c(RING, &[])));
    let pid = target.pid().to_string();
    // Most were asleep as we came, when less is known of their stacks than later.
    let report = watched(target.pid());
    let turn = class(&report, "turn (in program)");
    assert!(list(turn, "sites").iter().any(|site| leads_to(&site["stack"], RING, "// calls")), "{turn:#}");
    for round in 0..12 {
        let mut stat = Command::new(command());
        stat.args(["stat", "--pid", &pid, "--for", "0.02", "-o", "/dev/null"]);
        from_a_terminal(&mut stat);
        let mut stat = stat.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        if round % 4 == 3 {
            // Somewhere on the way.
            std::thread::sleep(Duration::from_millis(3 * round));
            stat.kill().expect("it is ours");
            stat.wait().expect("it is ours");
        } else {
            assert!(stat.wait().expect("it is ours").success());
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let state = status.lines().find(|line| line.starts_with("State:")).expect("a state");
        assert!(state.contains('S') || state.contains('R'), "{state}");
    }
    assert_eq!(target.end(), ["done"]);
}
