//! The frame of a page of results for a browser: it needs no network, no fonts and no library.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of pages of results.
pub const STYLE: &str = include_str!("style.css");

/// A page in both schemes of colours, for wide screens and narrow ones, which needs nothing but itself.
/// `policy` is what it may ask for and run; `styles` are trusted.
pub fn document(title: &str, policy: &str, styles: &[&str], body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { @for style in styles { (PreEscaped(style)) } }
            }
            body { (body) }
        }
    };
    page.into_string()
}
