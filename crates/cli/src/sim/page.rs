//! Charts with their tables as one HTML page that needs nothing else: no network, no fonts, no script.
//!
//! Every word goes through `maud`, which escapes it.

use maud::{PreEscaped, html};
use poundlock_measure::page::document;

use super::sheet::Sheet;
use crate::message::Failure;
use crate::results::command_line;
use poundlock_bench::plot::{self, Look};

const STYLE: &str = include_str!("page.css");
/// The page may ask nobody for anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A chart and its table.
pub(crate) struct Section {
    /// Its heading.
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) legend: Vec<(Look, String)>,
    /// SVG.
    pub(crate) chart: String,
    pub(crate) sheet: Sheet,
    /// What there is to say below.
    pub(crate) notes: Vec<String>,
}

/// The page, made by this sub-command.
pub(crate) fn html(maker: &str, title: &str, lead: &str, sections: &[Section]) -> Result<String, Failure> {
    let mut swatches = Vec::new();
    for (look, name) in sections.iter().flat_map(|section| &section.legend) {
        swatches.push((look.swatch()?, name));
    }
    let mut swatches = swatches.into_iter();
    let dark = format!("@media (prefers-color-scheme: dark) {{\n{}}}\n", plot::dark());
    let body = html! {
        header {
            h1 { (title) }
            p.soft { (lead) }
            p.soft { "Command: " code { (command_line(std::env::args_os().skip(1))) } }
            @if sections.len() > 1 {
                nav aria-label="Parts of this page" {
                    ul {
                        @for section in sections { li { a href={ "#" (section.name) } { (section.name) } } }
                    }
                }
            }
        }
        main {
            @for section in sections {
                section {
                    h2 id=(section.name) { (section.name) }
                    p { (section.about) }
                    figure {
                        div.chart role="img" aria-label={ (section.name) ": the numbers are in the table \
                            below" } {
                            (PreEscaped(&section.chart))
                        }
                        ul.legend {
                            @for (swatch, name) in swatches.by_ref().take(section.legend.len()) {
                                li { span aria-hidden="true" { (PreEscaped(swatch)) } (name) }
                            }
                        }
                        (section.sheet.html())
                    }
                    @for note in &section.notes { p.soft { (note) } }
                }
            }
        }
        footer { p { "Made by " code { "poundlock " (maker) } " " (env!("CARGO_PKG_VERSION")) "." } }
    };
    Ok(document(title, POLICY, &[STYLE, &dark], &body))
}
