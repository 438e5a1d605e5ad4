//! Findings as SARIF 2.1.0, which code hosts and editors read.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::observe::symbols::Frame;
use crate::output::quoted;

use super::finding::{Finding, Stack, interesting, line};
use super::kinds::{Kind, Level};
use super::report::Report;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// What files are relative to that lie below the working directory.
const BASE: &str = "%SRCROOT%";

/// Our own fingerprint of a finding. The number grows when it is made in another way.
const FINGERPRINT: &str = "poundlockFinding/v1";

/// Writes all of it.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    serde_json::to_writer_pretty(&mut *out, &document(report, &dir))?;
    out.write_all(b"\n")
}

fn document(report: &Report, dir: &Path) -> Value {
    let rules: Vec<Value> = Kind::all().map(rule).collect();
    let results: Vec<Value> = report.findings.iter().map(|finding| result(finding, dir)).collect();
    let command: Vec<String> = report.command.iter().map(|word| quoted(word)).collect();
    let notes = report.unseen.iter().cloned().chain(report.no_room.in_words());
    let notifications: Vec<Value> = notes
        .map(|note| json!({ "level": "warning", "message": { "text": format!("not seen: {note}") } }))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "poundlock check",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "invocations": [{
                "commandLine": command.join(" "),
                "executionSuccessful": true,
                "toolExecutionNotifications": notifications,
            }],
            "originalUriBaseIds": { BASE: { "uri": format!("{}/", uri_of(dir).trim_end_matches('/')) } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn level(kind: Kind) -> &'static str {
    match kind.level() {
        Level::Error => "error",
        Level::Warning => "warning",
    }
}

fn rule(kind: Kind) -> Value {
    json!({
        "id": kind.name(),
        "shortDescription": { "text": capital(kind.brief()) },
        "fullDescription": { "text": kind.full() },
        "help": { "text": format!("{} {}.", kind.full(), capital(kind.advice())) },
        "defaultConfiguration": { "level": level(kind) },
    })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn result(finding: &Finding, dir: &Path) -> Value {
    let place = Kind::all().position(|kind| kind == finding.kind);
    let described = |stack: &Stack| {
        let frame = line(&stack.frames)?;
        let mut location = location(frame, dir);
        location["message"] = json!({ "text": stack.sentence() });
        Some(location)
    };
    let locations: Vec<Value> = finding.stacks.iter().filter_map(described).collect();
    let related: Vec<Value> = locations
        .iter()
        .skip(1)
        .enumerate()
        .map(|(n, location)| {
            let mut location = location.clone();
            location["id"] = json!(n + 1);
            location
        })
        .collect();
    let stacks: Vec<Value> =
        finding.stacks.iter().filter(|stack| !stack.frames.is_empty()).map(|of| stack(of, dir)).collect();
    let mut message = format!("{}.", capital(&finding.headline));
    for stack in &finding.stacks {
        message += &format!("\n{}", stack.sentence());
    }
    for note in &finding.notes {
        message += &format!("\n{note}");
    }
    message += &format!("\nTo do: {}.", finding.advice);
    let mut result = json!({
        "ruleId": finding.kind.name(),
        "ruleIndex": place,
        "level": level(finding.kind),
        "message": { "text": message },
        "locations": locations.first().into_iter().collect::<Vec<_>>(),
        "relatedLocations": related,
        "stacks": stacks,
        "occurrenceCount": finding.count,
        "partialFingerprints": { FINGERPRINT: finding.fingerprint() },
    });
    let flows = thread_flows(finding, dir);
    if !flows.is_empty() {
        result["codeFlows"] = json!([{ "threadFlows": flows }]);
    }
    result
}

/// Each thread's steps, in the order in which it took them: what it held comes before what it asked for.
fn thread_flows(finding: &Finding, dir: &Path) -> Vec<Value> {
    let mut flows: Vec<(String, Vec<&Stack>)> = Vec::new();
    for stack in &finding.stacks {
        let who = stack.thread.as_ref().map_or_else(|| "nobody".to_owned(), super::finding::Thread::in_words);
        match flows.last_mut().filter(|_| stack.goes_on) {
            Some((_, steps)) => steps.insert(0, stack),
            None => flows.push((who, vec![stack])),
        }
    }
    let flow = |(who, steps): (String, Vec<&Stack>)| {
        let steps: Vec<Value> = steps
            .into_iter()
            .filter_map(|step| {
                let mut location = location(line(&step.frames)?, dir);
                location["message"] = json!({ "text": step.what });
                Some(json!({ "location": location }))
            })
            .collect();
        (!steps.is_empty()).then(|| json!({ "message": { "text": who }, "locations": steps }))
    };
    flows.into_iter().filter_map(flow).collect()
}

fn stack(stack: &Stack, dir: &Path) -> Value {
    let frames: Vec<Value> = interesting(&stack.frames)
        .into_iter()
        .map(|frame| {
            let mut value = json!({ "location": location(frame, dir) });
            if !frame.module.is_empty() {
                value["module"] = json!(frame.module);
            }
            value
        })
        .collect();
    json!({ "message": { "text": stack.sentence() }, "frames": frames })
}

fn location(frame: &Frame, dir: &Path) -> Value {
    let mut location = json!({});
    if !frame.file.is_empty() {
        let mut physical = json!({ "artifactLocation": artifact(&frame.file, dir) });
        // A line of 0 is none.
        if frame.line > 0 {
            physical["region"] = json!({ "startLine": frame.line });
        }
        location["physicalLocation"] = physical;
    }
    let name = if frame.name.is_empty() { &frame.text } else { &frame.name };
    location["logicalLocations"] = json!([{ "fullyQualifiedName": name, "kind": "function" }]);
    location
}

/// A source file: relative if it lies below the working directory.
fn artifact(file: &str, dir: &Path) -> Value {
    let path = without_dots(Path::new(file));
    match path.strip_prefix(dir) {
        Ok(below) => json!({ "uri": encoded(below), "uriBaseId": BASE }),
        Err(_) if path.is_relative() => json!({ "uri": encoded(&path), "uriBaseId": BASE }),
        Err(_) => json!({ "uri": uri_of(&path) }),
    }
}

/// The path without `.` and, where that is possible without a look at the disk, without `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

fn uri_of(path: &Path) -> String {
    format!("file://{}", encoded(path))
}

/// A path as a part of a URI.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(byte.into())
            }
            byte => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::{frame, order};
    use super::*;

    fn of(findings: Vec<Finding>) -> Value {
        document(
            &Report { findings, command: vec!["server".into(), "a b".into()], ..Report::default() },
            Path::new("/src"),
        )
    }

    /// What the schema of SARIF 2.1.0 requires of what we write, and which values it lets stand there.
    #[track_caller]
    fn check(document: &Value) {
        let text =
            |value: &Value| assert!(value.as_str().is_some_and(|text| !text.is_empty()), "no text: {value}");
        let only = |value: &Value, keys: &[&str]| {
            for key in value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys() {
                assert!(keys.contains(&key.as_str()), "{key} does not belong into {value}");
            }
        };
        let list = |value: &Value| value.as_array().unwrap_or_else(|| panic!("no list: {value}")).clone();
        let message = |value: &Value| {
            only(value, &["text"]);
            text(&value["text"]);
        };
        let location = |value: &Value| {
            only(value, &["id", "message", "physicalLocation", "logicalLocations"]);
            if let Some(physical) = value.get("physicalLocation") {
                only(physical, &["artifactLocation", "region"]);
                let artifact = &physical["artifactLocation"];
                only(artifact, &["uri", "uriBaseId"]);
                text(&artifact["uri"]);
                let uri = artifact["uri"].as_str().unwrap();
                assert!(uri.is_ascii() && !uri.contains([' ', '\\']), "{uri}");
                assert_eq!(uri.starts_with("file:///"), artifact.get("uriBaseId").is_none());
                if let Some(region) = physical.get("region") {
                    only(region, &["startLine"]);
                    assert!(region["startLine"].as_u64().is_some_and(|line| line >= 1));
                }
            }
            for logical in list(&value["logicalLocations"]) {
                only(&logical, &["fullyQualifiedName", "kind"]);
            }
            if let Some(id) = value.get("id") {
                assert!(id.as_u64().is_some());
            }
            value.get("message").map(message);
        };
        only(document, &["$schema", "version", "runs"]);
        assert_eq!(document["version"], "2.1.0");
        for run in list(&document["runs"]) {
            only(&run, &["tool", "invocations", "originalUriBaseIds", "columnKind", "results"]);
            only(&run["tool"], &["driver"]);
            let driver = &run["tool"]["driver"];
            only(driver, &["name", "semanticVersion", "rules"]);
            text(&driver["name"]);
            assert!(["utf16CodeUnits", "unicodeCodePoints"].contains(&run["columnKind"].as_str().unwrap()));
            let rules = list(&driver["rules"]);
            for rule in &rules {
                only(rule, &["id", "shortDescription", "fullDescription", "help", "defaultConfiguration"]);
                text(&rule["id"]);
                for what in ["shortDescription", "fullDescription", "help"] {
                    message(&rule[what]);
                }
            }
            for invocation in list(&run["invocations"]) {
                only(&invocation, &["commandLine", "executionSuccessful", "toolExecutionNotifications"]);
                assert!(invocation["executionSuccessful"].is_boolean());
            }
            for base in run["originalUriBaseIds"].as_object().unwrap().values() {
                // It has to be absolute, and to end in a slash.
                assert!(
                    base["uri"].as_str().is_some_and(|uri| uri.starts_with("file:///") && uri.ends_with('/'))
                );
            }
            for result in list(&run["results"]) {
                only(
                    &result,
                    &[
                        "ruleId",
                        "ruleIndex",
                        "level",
                        "message",
                        "locations",
                        "relatedLocations",
                        "stacks",
                        "occurrenceCount",
                        "partialFingerprints",
                        "codeFlows",
                    ],
                );
                message(&result["message"]);
                assert!(["none", "note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
                let rule = &rules[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
                assert_eq!(rule["id"], result["ruleId"]);
                assert!(result["occurrenceCount"].as_u64().is_some_and(|count| count >= 1));
                assert!(result["partialFingerprints"].as_object().unwrap().values().all(Value::is_string));
                list(&result["locations"]).iter().for_each(location);
                let related = list(&result["relatedLocations"]);
                related.iter().for_each(location);
                let mut ids: Vec<_> = related.iter().map(|location| location["id"].as_u64()).collect();
                ids.dedup();
                assert_eq!(ids.len(), related.len());
                for stack in list(&result["stacks"]) {
                    only(&stack, &["message", "frames"]);
                    message(&stack["message"]);
                    for frame in list(&stack["frames"]) {
                        only(&frame, &["location", "module"]);
                        location(&frame["location"]);
                    }
                }
                for flow in result.get("codeFlows").map(list).unwrap_or_default() {
                    only(&flow, &["threadFlows"]);
                    assert!(!list(&flow["threadFlows"]).is_empty());
                    for thread in list(&flow["threadFlows"]) {
                        only(&thread, &["message", "locations"]);
                        assert!(!list(&thread["locations"]).is_empty());
                        for step in list(&thread["locations"]) {
                            only(&step, &["location"]);
                            location(&step["location"]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn it_is_what_the_schema_asks_for() {
        check(&of(Vec::new()));
        let mut unknown = order("a", "b", "put", "get");
        unknown.stacks[0].frames = vec![frame("", 0)];
        unknown.stacks[1].frames.clear();
        unknown.stacks[2].thread = None;
        unknown.stacks[3].frames[0].line = 0;
        let mut bare = order("a", "b", "put", "get");
        bare.stacks.clear();
        check(&of(vec![order("cache", "log", "put", "get"), unknown, bare]));
    }

    #[test]
    fn each_thread_has_its_steps_in_their_order() {
        let document = of(vec![order("cache", "log", "put", "get")]);
        let result = &document["runs"][0]["results"][0];
        let flows = result["codeFlows"][0]["threadFlows"].as_array().unwrap();
        let lines = |flow: &Value| -> Vec<u64> {
            let steps = flow["locations"].as_array().unwrap();
            steps
                .iter()
                .map(|s| s["location"]["physicalLocation"]["region"]["startLine"].as_u64().unwrap())
                .collect()
        };
        assert_eq!(flows.iter().map(lines).collect::<Vec<_>>(), [[9, 10], [19, 20]]);
        assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "a.c");
        assert_eq!(result["relatedLocations"].as_array().map(Vec::len), Some(3));
        assert_eq!(result["stacks"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn files_are_relative_where_that_is_possible() {
        let of = |file| artifact(file, Path::new("/home/me/a project"));
        assert_eq!(
            of("/home/me/a project/./src/../lib/x y.c"),
            json!({ "uri": "lib/x%20y.c", "uriBaseId": BASE })
        );
        assert_eq!(of("/usr/include/ä.h"), json!({ "uri": "file:///usr/include/%C3%A4.h" }));
        assert_eq!(of("src/a.c"), json!({ "uri": "src/a.c", "uriBaseId": BASE }));
    }
}
