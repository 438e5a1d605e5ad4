//! How each contender is drawn: told apart without colours, too.

use maud::{Markup, PreEscaped, html};

use crate::plot::{self, inside};

/// Colours in the style sheet, beside that of the subject.
const COLOURS: usize = 9;

/// A contender's colour, dashes and marker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    /// Number of the colour in the style sheet.
    colour: usize,
    group: Group,
    /// Its marker, and how wide its line is.
    pub(super) drawn: plot::Look,
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

impl Look {
    /// Of the lock that the page is about.
    pub(super) fn subject() -> Look {
        let drawn = plot::Look { width: 3, size: 3, ..plot::Look::nth(0) };
        Look { colour: 0, group: Group::Peer, drawn, subject: true }
    }

    /// Of the `index`th of a group.
    pub(super) fn of(group: Group, index: usize) -> Look {
        let drawn = plot::Look { width: 1, size: 3, ..plot::Look::nth(index) };
        Look { colour: 1 + index % COLOURS, group, drawn, subject: false }
    }

    /// The value of a `style` attribute.
    pub(super) fn style(&self) -> String {
        format!("--c:var(--k{})", self.colour)
    }

    /// The class of its lines, for their dashes.
    pub(super) fn class(&self) -> &'static str {
        match self.group {
            Group::Peer => "whole",
            Group::SpinningPeer => "dashed",
            Group::Ours => "dotted",
        }
    }

    /// A piece of its line, for legends, as a picture of its own.
    pub(super) fn swatch(&self) -> Markup {
        html! { svg class="swatch" viewBox="0 0 32 14" aria-hidden="true" { (self.piece("")) } }
    }

    /// What a swatch shows, under an id by which others may show it too.
    pub(super) fn piece(&self, id: &str) -> Markup {
        let drawn = self.drawn.swatch().unwrap_or_default();
        html! {
            g id=[(!id.is_empty()).then_some(id)] class={ "drawn " (self.class()) } style=(self.style()) {
                (PreEscaped(inside(&drawn)))
            }
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
            looks.extend((0..COLOURS * 4).map(|index| Look::of(group, index)));
        }
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{look:?}");
        }
    }

    #[test]
    fn every_colour_is_in_the_style_sheet_for_both_schemes() {
        for colour in 0..=COLOURS {
            let colour = format!("--k{colour}:");
            assert_eq!(super::super::STYLE.matches(&colour).count(), 2, "{colour}");
        }
    }
}
