//! Who took part, in which order and with which look, and which of them are shown.

use std::fmt::Write;

use maud::{Markup, html};

use super::look::{Group, Look};
use crate::grid::compare::{EMPTY, Results};

/// A contender.
#[derive(Clone, Debug)]
pub(super) struct Person {
    /// Index into the run's peers.
    pub(super) peer: usize,
    /// Its name.
    pub(super) name: String,
    /// How it is drawn.
    pub(super) look: Look,
    /// Whether it is shown before the reader chooses.
    shown: bool,
}

/// All that are drawn: the subject first, then its competitors, then others of ours. What does nothing is
/// none of them.
pub(super) struct People {
    groups: Vec<(&'static str, Vec<Person>)>,
}

impl People {
    pub(super) fn of(results: &Results) -> People {
        let subject = results.ours();
        let group = |heading, group: Option<Group>, shown| {
            let of_group = |peer: &usize| {
                let this = &results.run.peers[*peer];
                let its_group = match this {
                    _ if *peer == subject => None,
                    this if this.ours => Some(Group::Ours),
                    this if this.spins => Some(Group::SpinningPeer),
                    _ => Some(Group::Peer),
                };
                this.name != EMPTY && its_group == group
            };
            let person = |(index, peer): (usize, usize)| Person {
                peer,
                name: results.run.peers[peer].name.clone(),
                look: group.map_or_else(Look::subject, |group| Look::of(group, index)),
                shown,
            };
            (heading, (0..results.run.peers.len()).filter(of_group).enumerate().map(person).collect())
        };
        People {
            groups: vec![
                ("Subject", group("", None, true).1),
                group("Peers", Some(Group::Peer), true),
                group("Peers that only spin", Some(Group::SpinningPeer), true),
                group("Others of ours", Some(Group::Ours), false),
            ],
        }
    }

    /// In the order of tables.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Person> {
        self.groups.iter().flat_map(|(_, group)| group)
    }

    /// Hides those who are not chosen. Built of numbers alone.
    pub(super) fn rules(&self) -> String {
        let mut rules = String::new();
        for Person { peer, .. } in self.all() {
            let _ = writeln!(rules, "body:has(#show{peer}:not(:checked)) .w{peer}{{display:none}}");
        }
        rules
    }

    /// Who is shown, for the reader to change.
    pub(super) fn choice(&self) -> Markup {
        html! {
            details.who open {
                summary { "Locks shown" }
                @for (heading, group) in self.groups.iter().filter(|(_, group)| !group.is_empty()) {
                    fieldset {
                        legend { (heading) }
                        @for person in group {
                            label.chip {
                                input type="checkbox" id={ "show" (person.peer) } data-who=(person.peer)
                                    data-subject[person.look.subject] checked[person.shown]
                                    autocomplete="off";
                                span { (person.look.swatch()) (person.name) }
                            }
                        }
                    }
                }
                div.buttons {}
            }
        }
    }

    /// The pieces of lines that [`People::legend`] shows, once a page.
    pub(super) fn pieces(&self) -> Markup {
        html! {
            svg.pieces width="0" height="0" aria-hidden="true" {
                @for person in self.all() { (person.look.piece(&format!("piece{}", person.peer))) }
            }
        }
    }

    /// Who is who, beside each plot: those who are shown. For those who see it; the tables say it in words.
    pub(super) fn legend(&self) -> Markup {
        html! {
            ul.legend aria-hidden="true" {
                @for person in self.all() {
                    li class={ "w" (person.peer) } data-who=(person.peer) {
                        svg.swatch viewBox="0 0 32 14" { use href={ "#piece" (person.peer) } {} }
                        (person.name)
                    }
                }
            }
        }
    }
}
