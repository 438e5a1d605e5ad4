//! `top` says of a run what `stat` says of it.

use std::borrow::Cow;
use std::rc::Rc;

use poundlock_statfile::Snapshot;

use super::plain::{self, Wanted};
use super::source::Looked;
use super::table::Table;
use crate::observe::symbols::Symbols;
use crate::stat::tests::{RUN_NS, Run, forms, percentages, random_run};

/// One look at the whole run, by its own records or by futex calls.
fn looked(run: &Run, exact: bool) -> Looked {
    let symbols: &'static Symbols = Box::leak(Box::new(Symbols::new()));
    let mut snapshot = run.snapshot.clone();
    Looked {
        id: 1,
        pid: None,
        name: "server".to_owned(),
        locks: std::mem::take(&mut snapshot.locks),
        snapshot,
        space: Rc::new(symbols.space_of(Cow::Owned(Snapshot::default()))),
        generation: 1,
        exact,
        beside: false,
        over: false,
    }
}

#[test]
fn top_tells_the_same_shares_as_a_report_and_none_is_above_the_whole() {
    for seed in 0..400 {
        let run = random_run(seed);
        let times = run.sampled.as_ref().map(|sampled| sampled.times_of(|pid| pid == run.snapshot.pid));
        for exact in [true, false] {
            let report = forms(&run, !exact);
            let mut table = Table::new(0);
            let view = table.take(vec![looked(&run, exact)], times.as_ref(), RUN_NS, false);
            let text = plain::table(&view, Wanted { rows: usize::MAX, threads: false });
            let about = || format!("seed {seed}: {text}{}", report.text);
            assert!(percentages(&text).iter().all(|&percent| percent <= 100.0), "{}", about());
            assert!(text.contains(&format!(", lost {} of their time", report.lost)), "{}", about());
            let rows = text.lines().filter(|line| line.contains("  taken in 0x"));
            let mut shares: Vec<&str> =
                rows.filter_map(|row| row.split("  ").find(|cell| !cell.is_empty())).map(str::trim).collect();
            let others = shares.iter().filter(|share| **share == "-").count();
            shares.retain(|share| *share != "-");
            assert_eq!(
                (&shares, shares.len() + others),
                (&report.shares.iter().map(String::as_str).collect(), view.rows.len()),
                "{}",
                about()
            );
            let threads = plain::table(&view, Wanted { rows: usize::MAX, threads: true });
            assert!(percentages(&threads).iter().all(|&percent| percent <= 100.0), "{threads}");
        }
    }
}
