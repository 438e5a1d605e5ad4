//! `csound`: a synthesiser whose instruments, played by several threads, add their sound to the output one
//! after the other under a `pthread_spinlock_t`. Sums of whole numbers do not depend on the order: the
//! samples are the same whatever the number of threads.

use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::real::every_spin_way;
use crate::real::how::How;
use crate::support::compile_c;
use crate::support::need;

const INSTRUMENTS: u32 = 6;
/// A control period is 8 samples: so often each instrument adds its part, in each of the seconds.
const PERIODS: u64 = 1000;
const SECONDS: u64 = 4;

/// Each instrument plays a constant, a power of 4, so that a sample tells who took part in it.
fn score() -> String {
    let mut text =
        "<CsoundSynthesizer>\n<CsInstruments>\nsr = 8000\nksmps = 8\nnchnls = 1\n0dbfs = 32768\n".to_string();
    for number in 1..=INSTRUMENTS {
        text += &format!("instr {number}\n  asound = a(p4)\n  out asound\nendin\n");
    }
    text += "</CsInstruments>\n<CsScore>\n";
    for number in 1..=INSTRUMENTS {
        text += &format!("i {number} 0 {SECONDS} {}\n", 4u32.pow(number));
    }
    text + "</CsScore>\n</CsoundSynthesizer>\n"
}

/// The samples of a WAV file of 16 bits, which csound writes with chunks of its own beside them.
#[track_caller]
fn samples(wav: &[u8]) -> Vec<i16> {
    let at = wav.windows(4).position(|word| word == b"data").expect("a chunk of samples");
    wav[at + 8..].chunks_exact(2).map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]])).collect()
}

fn play(how: How, threads: u32) -> Option<Vec<i16>> {
    // The command itself is not run, as it may crash at its end, whatever its locks: see the player.
    need("csound", "csound")?;
    static PLAYER: OnceLock<PathBuf> = OnceLock::new();
    let player = PLAYER.get_or_init(|| {
        compile_c(include_str!("../../../../tests/real/csound_play.c"), &["-Wall", "-Werror", "-ldl"])
    });
    let dir = TempDir::new().expect("a temporary directory can be made");
    let (score_file, wav) = (dir.path().join("sum.csd"), dir.path().join("sum.wav"));
    std::fs::write(&score_file, score()).expect("the score can be written");
    let (score_file, output) = (score_file.to_str().expect("UTF-8"), wav.to_str().expect("UTF-8"));
    // No display, no messages, WAV, 16 bits.
    let threads = format!("-j{threads}");
    let args = [threads.as_str(), "-d", "-m0", "-W", "-s", "-o", output, score_file];
    let finished = how.launch(player, &args).finish();
    if let Some(report) = finished.report {
        // Each addition to the output is one acquisition.
        let least = SECONDS * PERIODS * u64::from(INSTRUMENTS);
        assert!(report.spins >= least, "{} acquisitions of spinlocks, {least} sums", report.spins);
    }
    Some(samples(&std::fs::read(&wav).expect("csound has written its output")))
}

fn sums(how: How) {
    let Some(heard) = play(how, 4) else { return };
    static CONTROL: OnceLock<Option<Vec<i16>>> = OnceLock::new();
    let control = CONTROL.get_or_init(|| play(How::Plain, 1)).as_ref().expect("it is installed");
    let all = (1..=INSTRUMENTS).map(|number| 4i16.pow(number)).sum::<i16>();
    assert!(control.len() as u64 >= SECONDS * PERIODS * 8, "only {} samples", control.len());
    // All but the first period, in which each rises to its value.
    assert!(control[8..control.len() / 2].iter().all(|&sample| sample == all), "the control is wrong");
    let wrong = heard.iter().zip(control).position(|(one, other)| one != other);
    assert!(heard.len() == control.len() && wrong.is_none(), "sample {wrong:?} of {} differs", heard.len());
}

every_spin_way!(sums);
