//! How many waits, and holds that somebody waited for, took how long.

use maud::{Markup, html};

use super::{percent_of, title};
use crate::stat::class::Class;
use crate::stat::events::site_bounds;
use crate::stat::text::duration;

/// The heights of the bars and of the line of durations below them, in pixels.
const BARS: usize = 80;
const AXIS: usize = 18;
/// Durations that are written there.
const LABELS: usize = 4;

/// Both of a class.
pub(super) fn both(class: &Class) -> Markup {
    let figures = &class.figures;
    html! {
        h3 { (title(class)) }
        div.pair {
            (picture("waits", "", &figures.wait_buckets))
            @if class.kind.is_acquired() {
                (picture("holds that others waited for", " held", &figures.waited_hold_buckets))
            }
        }
    }
}

fn picture(what: &str, class: &str, buckets: &[u64]) -> Markup {
    let some = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (buckets.iter().position(some), buckets.iter().rposition(some)) else {
        return html! {};
    };
    let buckets = &buckets[first..=last];
    let highest = buckets.iter().copied().max().unwrap_or(1).max(1);
    // A few are no reason for bars as wide as the page.
    let count = buckets.len().max(8);
    let place = |n: usize| n as f64 / count as f64;
    let step = buckets.len().div_ceil(LABELS);
    html! {
        figure {
            figcaption { (what) ": " (buckets.iter().sum::<u64>()) ", at most " (highest) " in a bar" }
            svg class={ "spread" (class) } width="100%" height=(BARS + AXIS) role="img"
                aria-label={ (what) " by how long they took" } {
                @for (n, number) in buckets.iter().enumerate() {
                    @let height = (*number as f64 / highest as f64 * BARS as f64)
                        .max(if *number > 0 { 1.5 } else { 0.0 });
                    g {
                        title {
                            (words(first + n)) ": " (number)
                        }
                        rect x=(percent_of(place(n))) y=(format!("{:.1}", BARS as f64 - height))
                            width=(percent_of(0.9 / count as f64)) height=(format!("{height:.1}")) {}
                    }
                    // One at the right end would be cut.
                    @if n % step == 0 && place(n) < 0.85 {
                        text x=(percent_of(place(n))) y=(BARS + AXIS - 5) {
                            @if site_bounds(first + n).0 == 0 { (words(first + n)) }
                            @else { (duration(site_bounds(first + n).0)) }
                        }
                    }
                }
                line x2="100%" y1=(BARS) y2=(BARS) {}
            }
        }
    }
}

/// The durations of a bar.
fn words(bucket: usize) -> String {
    match site_bounds(bucket) {
        (0, to) => format!("below {}", duration(to)),
        (from, u64::MAX) => format!("{} and more", duration(from)),
        (from, to) => format!("{} to {}", duration(from), duration(to)),
    }
}
