//! Figures in rows and columns: as text, and for a page.

use comfy_table::{CellAlignment, Table, presets};
use maud::{Markup, html};

/// Ready-made cells.
pub(crate) struct Sheet {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The columns that hold words. All others hold figures.
    pub(crate) words: &'static [usize],
}

impl Sheet {
    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(&self.header).add_rows(&self.rows);
        for (index, column) in table.column_iter_mut().enumerate() {
            if !self.words.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt() + "\n"
    }

    /// For a browser.
    pub(crate) fn html(&self) -> Markup {
        html! {
            div.scroll {
                table {
                    thead { tr {
                        @for (index, cell) in self.header.iter().enumerate() {
                            th.words[self.words.contains(&index)] scope="col" { (cell) }
                        }
                    } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (index, cell) in row.iter().enumerate() {
                                    @if self.words.contains(&index) { th.words scope="row" { (cell) } }
                                    @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
