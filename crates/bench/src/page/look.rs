//! How each contender is drawn: told apart without colours, too.

use maud::{Markup, html};

/// Colours in the style sheet, beside that of the subject.
const COLOURS: usize = 9;

/// A contender's colour, dashes and marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Number of the colour in the style sheet.
    colour: usize,
    group: Group,
    /// The shape at each measured point.
    pub(super) marker: Marker,
    /// Whether it is the lock that the page is about.
    pub(super) subject: bool,
}

/// What kind of contender: its lines have their own dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Of others, and it can sleep.
    Peer,
    /// Of others, and its waiters only spin.
    SpinningPeer,
    /// Another one of ours.
    Ours,
}

/// The shape at a measured point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Upturned,
    Bar,
}

impl Look {
    /// Of the lock that the page is about.
    pub(super) fn subject() -> Look {
        Look { colour: 0, group: Group::Ours, marker: Marker::Circle, subject: true }
    }

    /// Of the `index`th of a group.
    pub(super) fn of(group: Group, index: usize) -> Look {
        const MARKERS: [Marker; 5] =
            [Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Upturned, Marker::Bar];
        // As many markers as colours would give each colour one marker for ever; 5 and 9 have no common
        // divisor.
        Look { colour: 1 + index % COLOURS, group, marker: MARKERS[index % MARKERS.len()], subject: false }
    }

    /// The value of a `style` attribute.
    pub(super) fn style(&self) -> String {
        format!("--c:var(--k{})", self.colour)
    }

    /// The value of `stroke-dasharray`.
    pub(super) fn dash(&self) -> Option<&'static str> {
        match self.group {
            _ if self.subject => None,
            Group::Peer => None,
            Group::SpinningPeer => Some("6 3"),
            Group::Ours => Some("1.5 2.5"),
        }
    }

    /// A piece of its line, for legends.
    pub(super) fn swatch(&self) -> Markup {
        html! { svg class="swatch" viewBox="0 0 30 10" aria-hidden="true" { (self.piece("")) } }
    }

    /// What a swatch shows, under an id by which others may show it too.
    pub(super) fn piece(&self, id: &str) -> Markup {
        html! {
            g id=[(!id.is_empty()).then_some(id)] class={ "piece" @if self.subject { " subject" } } style=(self.style()) {
                path class="course" d="M1 5H29" stroke-dasharray=[self.dash()] {}
                path class="marker" d=(self.marker.path(15.0, 5.0)) {}
            }
        }
    }
}

impl Marker {
    /// A closed path around a point.
    pub(super) fn path(self, x: f64, y: f64) -> String {
        match self {
            Marker::Circle => format!("M{:.1} {y:.1}a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", x - 3.0),
            Marker::Square => format!("M{:.1} {:.1}h5v5h-5z", x - 2.5, y - 2.5),
            Marker::Triangle => format!("M{x:.1} {:.1}l3 5.4h-6z", y - 3.4),
            Marker::Diamond => format!("M{x:.1} {:.1}l3.3 3.3l-3.3 3.3l-3.3-3.3z", y - 3.3),
            Marker::Upturned => format!("M{x:.1} {:.1}l-3-5.4h6z", y + 3.4),
            Marker::Bar => format!("M{:.1} {:.1}h2.4v7h-2.4z", x - 1.2, y - 3.5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_like_another() {
        let mut looks = vec![Look::subject()];
        for group in [Group::Peer, Group::SpinningPeer, Group::Ours] {
            looks.extend((0..COLOURS * 5).map(|index| Look::of(group, index)));
        }
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{look:?}");
        }
    }

    #[test]
    fn every_colour_is_in_the_style_sheet_for_both_schemes() {
        let style = super::super::STYLE;
        for colour in 0..=COLOURS {
            assert_eq!(style.matches(&format!("--k{colour}:")).count(), 2, "colour {colour}");
        }
    }
}
