//! Where threads waited, as the tools that people have for stacks read it: inferno's folded lines (Brendan
//! Gregg's `flamegraph.pl` reads them too) and speedscope's file format.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::holders::sleeping;
use super::names::{NO_STACK, StackId};
use super::report::{Report, side};
use super::sampler::Purpose;

/// Every stack that waited, outermost first, under what it waited for; with the nanoseconds. Sleeps of which
/// only samples tell come last.
fn stacks(report: &Report) -> Vec<(Vec<String>, u64)> {
    let mut all = Vec::new();
    for class in &report.classes {
        let mut name = class.whole.name.clone();
        if let Some(side) = side(class.kind) {
            name = format!("{name}, {side}");
        }
        let mut sites: Vec<(StackId, u64)> =
            class.figures.sites.iter().map(|(&stack, site)| (stack, site.wait_ns)).collect();
        // Waits of which the place is not known.
        let known: u64 = sites.iter().map(|(_, ns)| ns).sum();
        sites.push((NO_STACK, class.figures.wait_ns.saturating_sub(known)));
        sites.sort_unstable();
        for (stack, ns) in sites.into_iter().filter(|&(_, ns)| ns > 0) {
            let mut frames = report.names.texts(stack);
            frames.reverse();
            frames.push(format!("[{}: {name}]", class.kind));
            all.push((frames, ns));
        }
    }
    let is_seen = report.about.futexes.is_some();
    for row in report.sleeps.iter().filter(|row| row.sum.ns > 0 && !row.is_counted(is_seen)) {
        let mut frames = report.names.texts(row.of.stack);
        frames.reverse();
        let idle = if row.of.purpose == Purpose::Blocked { "" } else { "idle, " };
        frames.push(format!("[{idle}{}]", sleeping(&row.of.what)));
        all.push((frames, row.sum.ns));
    }
    all
}

/// A stack a line: the frames with semicolons between them, a blank, and the microseconds that threads
/// waited.
pub(super) fn folded(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for (frames, ns) in stacks(report) {
        // What has a meaning of its own there.
        let clean = |frame: &String| frame.replace(';', ":").replace('\n', " ");
        let line = frames.iter().map(clean).collect::<Vec<_>>().join(";");
        // No wait is too short to be there.
        writeln!(out, "{line} {}", ns.div_ceil(1000))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Speedscope {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared,
    profiles: [Profile; 1],
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Profile {
    r#type: &'static str,
    name: &'static str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// A profile whose samples are the waits.
pub(super) fn speedscope(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (stack, ns) in stacks(report) {
        let sample = stack.into_iter().map(|text| {
            *places.entry(text).or_insert_with_key(|text| {
                frames.push(frame(text));
                frames.len() - 1
            })
        });
        samples.push(sample.collect());
        weights.push(ns);
    }
    let document = Speedscope {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("poundlock ", env!("CARGO_PKG_VERSION")).to_owned(),
        name: report.about.command.join(" "),
        active: 0,
        shared: Shared { frames },
        profiles: [Profile {
            r#type: "sampled",
            name: "waits",
            unit: "nanoseconds",
            start: 0,
            end: weights.iter().sum(),
            samples,
            weights,
        }],
    };
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")
}

/// A frame from its text: `function (file:line)`, or whatever is known.
fn frame(text: &str) -> Frame {
    let parts = || {
        let (name, rest) = text.strip_suffix(')')?.rsplit_once(" (")?;
        let (file, line) = rest.rsplit_once(':')?;
        Some(Frame { name: name.to_owned(), file: Some(file.to_owned()), line: Some(line.parse().ok()?) })
    };
    parts().unwrap_or_else(|| Frame { name: text.to_owned(), file: None, line: None })
}

#[cfg(test)]
mod tests {
    use super::frame;

    #[test]
    fn frames_are_taken_apart() {
        let found = frame("app::Store<long>::put(long) (dir/program.cpp:14)");
        assert_eq!(found.name, "app::Store<long>::put(long)");
        assert_eq!((found.file.as_deref(), found.line), (Some("dir/program.cpp"), Some(14)));
        for text in ["main+0x10 (in program)", "[mutex: a]", "0x10"] {
            assert_eq!((frame(text).name.as_str(), frame(text).file), (text, None));
        }
    }
}
