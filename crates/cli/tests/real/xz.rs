//! `xz -T4`: worker threads that take blocks from a queue and give their output to one writer in order.

use std::sync::OnceLock;

use tempfile::TempDir;

use crate::real::every_way;
use crate::real::how::How;
use crate::support::{need, once_a_run};

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 24;

/// Blocks in turn of words and of noise: workers that finish at very different times.
fn data() -> &'static [u8] {
    static DATA: OnceLock<Vec<u8>> = OnceLock::new();
    DATA.get_or_init(|| {
        let words: [&[u8]; 4] = [b"lock ", b"unlock ", b"wait ", b"wake\n"];
        let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise
        };
        let mut data = Vec::with_capacity(BLOCKS * BLOCK + BLOCK);
        for block in 1..=BLOCKS {
            while data.len() < block * BLOCK {
                let random = next();
                if block % 2 == 0 {
                    data.extend_from_slice(&random.to_le_bytes());
                } else {
                    data.extend_from_slice(words[(random >> 62) as usize]);
                }
            }
        }
        data.truncate(BLOCKS * BLOCK);
        data
    })
}

fn round_trip(how: How) {
    let Some(xz) = need("xz", "xz-utils") else { return };
    let dir = TempDir::new().expect("a temporary directory can be made");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain name").to_owned();
    let (original, compressed) = (path("data"), path("data.xz"));
    std::fs::write(&original, data()).expect("the data can be written");
    let block_size = format!("--block-size={BLOCK}");
    let compress = |how: How, threads| {
        let finished = how.launch(&xz, &[threads, "-1", &block_size, "--stdout", &original]).finish();
        if let Some(report) = finished.report {
            // The main thread, and a worker at least: it starts another when all that there are are busy.
            report.expect_threads(2);
        }
        finished.stdout
    };

    let bytes = compress(how, "-T4");
    assert!(bytes.len() < data().len() * 3 / 4, "half of the data is text");
    // Few threads or many, glibc's locks or ours: the same bytes, and nothing else on standard output.
    let control = once_a_run("xz", |directory| {
        std::fs::write(directory.join("control"), compress(How::Plain, "-T2")).expect("it can be written");
    });
    let control = std::fs::read(control.join("control")).expect("it was written");
    assert!(bytes == control, "the compressed bytes differ from those of two threads on glibc");

    std::fs::write(&compressed, &bytes).expect("the compressed data can be written");
    let list = How::Plain.launch(&xz, &["--robot", "--list", &compressed]).finish();
    let list = list.text();
    let blocks = list.lines().find_map(|line| line.strip_prefix("totals\t1\t")?.split('\t').next());
    assert_eq!(blocks, Some(BLOCKS.to_string().as_str()), "{list}");

    let restored = how.launch(&xz, &["-T4", "--decompress", "--stdout", &compressed]).finish();
    assert!(restored.stdout == data(), "the restored data differ");
}

every_way!(round_trip);
