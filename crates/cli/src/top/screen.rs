//! What is on the screen, and what keys do to it.

use std::collections::VecDeque;

use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::plain::{cells, headline, thread_cells};
use super::table::{Mark, Row, Text, View};
use crate::observe::shorten::{columns_of, fit};
use crate::stat::report::ratio;

/// What a key asks of those who look and draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Leave the screen.
    Quit,
    /// What Ctrl-C does in a terminal, and Ctrl-Z.
    Interrupt,
    Suspend,
    /// Look now, rather than when it is time.
    Look,
    /// Forget what was found so far.
    Anew,
    /// Draw everything anew.
    Repaint,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Locks,
    Threads,
    /// A class of locks, taken apart.
    Stacks(usize),
    /// What the command has printed.
    Output,
    Help,
}

/// The columns by which rows are sorted. Of threads *average* is the time on a CPU, and *held* that without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Lost,
    Waits,
    Average,
    Held,
    Name,
}

const COLUMNS: [Column; 5] = [Column::Lost, Column::Waits, Column::Average, Column::Held, Column::Name];

/// What is shown, and how.
pub(super) struct App {
    view: View,
    page: Page,
    /// Where Esc leads.
    before: Vec<Page>,
    /// The row of a table, and the first one that is shown.
    selected: usize,
    /// It is this class, wherever it goes.
    chosen: Option<usize>,
    first: usize,
    /// The first line that is shown of a page of text.
    scroll: usize,
    by: Column,
    /// Waits for what is no lock.
    others: bool,
    paused: bool,
    colour: bool,
    /// Whether there is anything for [`Page::Output`].
    has_output: bool,
    /// A line about the end of what is looked at, and lines about what is not seen.
    pub(super) ended: Option<String>,
    pub(super) notes: Vec<String>,
}

impl App {
    pub(super) fn new(threads: bool, colour: bool, has_output: bool) -> App {
        App {
            view: View::default(),
            page: if threads { Page::Threads } else { Page::Locks },
            before: Vec::new(),
            selected: 0,
            chosen: None,
            first: 0,
            scroll: 0,
            by: Column::Lost,
            others: false,
            paused: false,
            colour,
            has_output,
            ended: None,
            notes: Vec::new(),
        }
    }

    /// Shows this look from now on.
    pub(super) fn show(&mut self, view: View) {
        self.view = view;
        self.arrange();
        if let Some(id) = self.chosen
            && let Some(at) = self.rows().iter().position(|row| row.id == id)
        {
            self.selected = at;
        }
    }

    /// Puts rows into their order.
    fn arrange(&mut self) {
        let by = self.by;
        self.view.rows.sort_by(|a, b| {
            let average = |row: &Row| ratio(row.wait_ns, row.waits);
            let held = |row: &Row| row.holds.map_or(0.0, |(holds, ns)| ratio(ns, holds));
            let first = match by {
                Column::Lost => b.wait_ns.cmp(&a.wait_ns),
                Column::Waits => b.waits.cmp(&a.waits),
                Column::Average => average(b).total_cmp(&average(a)),
                Column::Held => held(b).total_cmp(&held(a)),
                Column::Name => a.name.cmp(&b.name),
            };
            // Of those that nobody waits for now, those come first that were waited for.
            let recent = |row: &Row| row.history.iter().sum::<f64>();
            first.then_with(|| recent(b).total_cmp(&recent(a))).then_with(|| a.name.cmp(&b.name))
        });
        self.view.by_thread.sort_by(|a, b| {
            let first = match by {
                Column::Lost => b.lost_ns.cmp(&a.lost_ns),
                Column::Waits => b.waits.cmp(&a.waits),
                Column::Average => b.ran_ns.cmp(&a.ran_ns),
                Column::Held => b.ready_ns.cmp(&a.ready_ns),
                Column::Name => a.name.cmp(&b.name),
            };
            first.then_with(|| a.tid.cmp(&b.tid))
        });
    }

    /// What is shown: of [`Page::Stacks`] and [`Page::Output`] the text is not ours.
    pub(super) fn page(&self) -> Page {
        self.page
    }

    /// Whether there are to be no more looks for now.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether names and CPU times of threads are wanted.
    pub(super) fn wants_threads(&self) -> bool {
        self.page == Page::Threads
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Interrupt,
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('l') => Action::Repaint,
                _ => Action::Nothing,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.toggle(Page::Help),
            KeyCode::Char('o') if self.has_output => self.toggle(Page::Output),
            KeyCode::Char('t') => {
                self.before.clear();
                self.go(if self.page == Page::Threads { Page::Locks } else { Page::Threads });
                // Their names are not there yet.
                return if self.wants_threads() && !self.paused { Action::Look } else { Action::Nothing };
            }
            KeyCode::Char('w') => {
                self.others = !self.others;
                (self.selected, self.chosen) = (0, None);
            }
            KeyCode::Char('s') => self.sort(1),
            KeyCode::Char('S') => self.sort(COLUMNS.len() - 1),
            KeyCode::Char(' ' | 'p') => {
                self.paused = !self.paused;
                return if self.paused { Action::Nothing } else { Action::Look };
            }
            KeyCode::Char('r') => return Action::Anew,
            KeyCode::Esc | KeyCode::Backspace => {
                if let Some(page) = self.before.pop() {
                    (self.page, self.scroll) = (page, 0);
                }
            }
            KeyCode::Enter => {
                if self.page == Page::Locks
                    && let Some(id) = self.rows().get(self.selected).map(|row| row.id)
                {
                    self.before.push(self.page);
                    self.go(Page::Stacks(id));
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.go_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go_by(1),
            KeyCode::PageUp => self.go_by(-10),
            KeyCode::PageDown => self.go_by(10),
            KeyCode::Home => self.go_by(isize::MIN),
            KeyCode::End => self.go_by(isize::MAX),
            _ => {}
        }
        Action::Nothing
    }

    fn go(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
        if matches!(page, Page::Locks | Page::Threads) {
            (self.selected, self.first) = (0, 0);
        }
    }

    /// To a page, or back from it.
    fn toggle(&mut self, page: Page) {
        if self.page == page {
            self.page = self.before.pop().unwrap_or(Page::Locks);
        } else {
            self.before.push(self.page);
            self.page = page;
        }
        self.scroll = 0;
    }

    fn sort(&mut self, by: usize) {
        let at = COLUMNS.iter().position(|column| *column == self.by).unwrap_or(0);
        self.by = COLUMNS[(at + by) % COLUMNS.len()];
        (self.selected, self.chosen) = (0, None);
        self.arrange();
    }

    fn go_by(&mut self, lines: isize) {
        let last = match self.page {
            Page::Locks => self.rows().len(),
            Page::Threads => self.view.by_thread.len(),
            _ => {
                // Where the text ends is known when it is drawn.
                self.scroll = self.scroll.saturating_add_signed(lines);
                return;
            }
        };
        self.selected = self.selected.saturating_add_signed(lines).min(last.saturating_sub(1));
        self.chosen = match self.page {
            // The first row stays the first one, whichever lock that is.
            Page::Locks if self.selected > 0 => self.rows().get(self.selected).map(|row| row.id),
            _ => None,
        };
    }

    /// The rows of the table of locks, in their order.
    fn rows(&self) -> Vec<&Row> {
        self.view.rows.iter().filter(|row| row.kind.is_acquired() != self.others).collect()
    }

    /// Draws; a page that is a text, with this one.
    pub(super) fn draw(&mut self, frame: &mut Frame, text: Option<Text>) {
        let area = frame.area();
        let width = usize::from(area.width);
        let mut lines = vec![self.title(width), self.total(width)];
        if !self.notes.is_empty() {
            lines.push(Line::styled(self.notes.join("; "), Style::new().add_modifier(Modifier::DIM)));
        }
        for line in self.view.stuck.iter().flat_map(|text| words_in_lines(text, width)) {
            lines.push(self.strong(&line));
        }
        let below = vec![self.about(width), self.help()];
        let room = usize::from(area.height).saturating_sub(lines.len() + below.len());
        match self.page {
            Page::Locks => self.draw_locks(&mut lines, width, room),
            Page::Threads => self.draw_threads(&mut lines, width, room),
            Page::Stacks(_) => {
                let text = self.text(text);
                self.draw_text(&mut lines, text, room);
            }
            Page::Output => {
                // The end of it.
                let mut text = self.text(text);
                text.drain(1..text.len().saturating_sub(room.saturating_sub(1)).max(1));
                lines.extend(text);
            }
            Page::Help => self.draw_text(&mut lines, help_page(), room),
        }
        lines.resize(usize::from(area.height).saturating_sub(below.len()), Line::default());
        lines.extend(below);
        for (y, line) in (area.y..area.bottom()).zip(&lines) {
            let row = Rect { x: area.x, y, width: area.width, height: 1 };
            frame.buffer_mut().set_line(row.x, row.y, line, row.width);
            // A line's own style is that of the whole row.
            frame.buffer_mut().set_style(row, line.style);
        }
    }

    fn title(&self, width: usize) -> Line<'static> {
        // First, so that it is seen where the line is too long.
        let state = match (&self.ended, self.paused) {
            (Some(_), _) => "  ENDED",
            (None, true) => "  PAUSED",
            (None, false) => "",
        };
        let text = if self.view.span_ns == 0 {
            format!("poundlock top{state}: looking")
        } else {
            let every = self.view.span_ns as f64 / 1e9;
            format!("poundlock top{state}  {}  every {every:.1} s", headline(&self.view))
        };
        Line::styled(format!("{text:<width$}"), Style::new().add_modifier(Modifier::REVERSED))
    }

    fn total(&self, width: usize) -> Line<'static> {
        let spark = spark(&self.view.history, width.saturating_sub(6), 1.0);
        Line::from(vec![Span::raw("lost  "), self.coloured(spark, Color::Cyan)])
    }

    fn draw_locks(&mut self, lines: &mut Vec<Line<'static>>, width: usize, room: usize) {
        let history = match width {
            0..80 => 0,
            80..110 => 10,
            _ => 20,
        };
        let what = if self.others { "other wait" } else { "lock" };
        let past = if history > 0 { format!("  {:<history$}", "history") } else { String::new() };
        lines.push(self.strong(&format!(
            "{:>7}  {:>7}  {:>8}  {:>9}  {:>9}{past}  {}",
            self.heading(Column::Lost, "lost"),
            "waiting",
            self.heading(Column::Waits, "waits/s"),
            self.heading(Column::Average, "wait avg"),
            self.heading(Column::Held, "held avg"),
            self.heading(Column::Name, what)
        )));
        let count = self.rows().len();
        let window = self.window(count, room.saturating_sub(1));
        let rows = self.rows();
        if rows.is_empty() {
            let others = self.view.rows.len();
            let what = match (self.others, others) {
                (false, 1..) => "no thread has waited for a lock; w shows what else threads wait for",
                (false, 0) => "no thread has waited for a lock",
                (true, _) => "no thread has waited for anything but locks",
            };
            lines.push(Line::from(what));
            return;
        }
        let most = rows.iter().flat_map(|row| &row.history).copied().fold(0.001, f64::max);
        for (at, row) in window.map(|at| (at, rows[at])) {
            let [lost, waiting, waits, wait, held] = cells(row, &self.view);
            let share = row.share.unwrap_or(0.0);
            let mut spans = vec![
                self.coloured(format!("{lost:>7}"), if share >= 0.1 { Color::Red } else { Color::Reset }),
                Span::raw(format!("  {waiting:>7}  {waits:>8}  {wait:>9}  {held:>9}")),
            ];
            if history > 0 {
                spans.push(Span::raw("  "));
                spans.push(self.coloured(spark(&row.history, history, most), Color::Cyan));
            }
            // The figures and the history before it, with the blanks between them.
            const FIGURES: usize = 52;
            let before = FIGURES + if history > 0 { history + 2 } else { 0 };
            spans.push(Span::raw(format!("  {}", fitted(&row.name, width.saturating_sub(before)))));
            lines.push(self.row(spans, at, row.waits == 0 && row.waiting == 0));
        }
    }

    fn draw_threads(&mut self, lines: &mut Vec<Line<'static>>, width: usize, room: usize) {
        lines.push(self.strong(&format!(
            "{:>7}  {:>7}  {:>7}  {:>8}  {:>7}  {:<16}  doing",
            self.heading(Column::Lost, "locks"),
            self.heading(Column::Average, "on CPU"),
            self.heading(Column::Held, "ready"),
            self.heading(Column::Waits, "waits/s"),
            "tid",
            self.heading(Column::Name, "thread")
        )));
        let window = self.window(self.view.by_thread.len(), room.saturating_sub(1));
        for (at, thread) in window.map(|at| (at, &self.view.by_thread[at])) {
            let [lost, ran, ready, waits] = thread_cells(thread, &self.view);
            let (tid, name) = (thread.tid, &thread.name);
            let before = format!("{lost:>7}  {ran:>7}  {ready:>7}  {waits:>8}  {tid:>7}  {name:<16}  ");
            let doing = fitted(&thread.doing, width.saturating_sub(columns_of(&before)));
            let text = before + &doing;
            lines.push(self.row(vec![Span::raw(text)], at, false));
        }
    }

    /// The name of a column, and whether rows are sorted by it.
    fn heading(&self, column: Column, name: &str) -> String {
        format!("{}{name}", if self.by == column { ">" } else { "" })
    }

    /// Which rows are shown, the selected one among them.
    fn window(&mut self, rows: usize, room: usize) -> std::ops::Range<usize> {
        self.selected = self.selected.min(rows.saturating_sub(1));
        self.first = self.first.min(self.selected).max((self.selected + 1).saturating_sub(room));
        self.first..rows.min(self.first + room)
    }

    fn row(&self, spans: Vec<Span<'static>>, at: usize, dim: bool) -> Line<'static> {
        let mut style = Style::new();
        if at == self.selected {
            style = style.add_modifier(Modifier::REVERSED);
        } else if dim {
            style = style.add_modifier(Modifier::DIM);
        }
        Line::from(spans).style(style)
    }

    fn text(&self, text: Option<Text>) -> Vec<Line<'static>> {
        let Some(text) = text else { return vec![Line::from("nothing is known of it")] };
        let title = std::iter::once((Mark::Strong, text.title));
        let line = |(mark, line): (Mark, String)| match mark {
            Mark::Strong => self.strong(&line),
            Mark::Plain => Line::from(line),
        };
        title.chain(text.lines).map(line).collect()
    }

    fn draw_text(&mut self, lines: &mut Vec<Line<'static>>, text: Vec<Line<'static>>, room: usize) {
        self.scroll = self.scroll.min(text.len().saturating_sub(room));
        lines.extend(text.into_iter().skip(self.scroll).take(room));
    }

    /// The line about the selected row, or what else there is to say.
    fn about(&self, width: usize) -> Line<'static> {
        if let Some(ended) = &self.ended {
            return self.strong(ended);
        }
        let row = match self.page {
            Page::Locks => self.rows().get(self.selected).map(|row| match &*row.line {
                "" => fitted(&row.name, width),
                line => {
                    // Each has half of the row, or what the other leaves.
                    let name = fitted(&row.name, (width / 2).max(width.saturating_sub(columns_of(line) + 2)));
                    let line = fitted(line, width.saturating_sub(columns_of(&name) + 2));
                    format!("{name}: {line}")
                }
            }),
            _ => None,
        };
        Line::from(row.unwrap_or_default())
    }

    fn help(&self) -> Line<'static> {
        let back = "Esc back  ";
        let text = match self.page {
            Page::Locks => "Enter stacks  t threads  w other waits  s sort  ",
            Page::Threads => "t locks  s sort  ",
            _ => back,
        };
        let output = if self.has_output { "o output  " } else { "" };
        let pause = if self.paused { "space go on" } else { "space pause" };
        Line::styled(
            format!("q quit  {text}{output}{pause}  ? help"),
            Style::new().add_modifier(Modifier::DIM),
        )
    }

    fn strong(&self, text: &str) -> Line<'static> {
        Line::styled(text.to_owned(), Style::new().add_modifier(Modifier::BOLD))
    }

    fn coloured(&self, text: String, colour: Color) -> Span<'static> {
        Span::styled(text, if self.colour { Style::new().fg(colour) } else { Style::new() })
    }
}

/// A place within columns, so that its line is seen; where there is hardly room for one, as it is.
fn fitted(place: &str, columns: usize) -> String {
    const LEAST: usize = 8;
    if columns < LEAST { place.to_owned() } else { fit(place, columns) }
}

/// A history as bars, the latest at the right. What is not nothing is seen.
fn spark(history: &VecDeque<f64>, width: usize, most: f64) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = history.iter().skip(history.len().saturating_sub(width));
    let bars: String = shown.map(|share| BARS[((share / most * 8.0).ceil() as usize).min(8)]).collect();
    format!("{bars:>width$}")
}

/// The text in lines of that width, broken between words.
fn words_in_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn help_page() -> Vec<Line<'static>> {
    let lines = [
        "q              leave; a command that top has started goes on",
        "up, down       select a row (k, j; page up, page down, home, end)",
        "Enter          who waited for the selected lock, and for whom: stacks since the start",
        "Esc            back",
        "t              threads, or locks",
        "w              waits for what is no lock: condition variables, semaphores, joins; or locks",
        "s, S           sort by the next column, or the one before",
        "space          pause, or go on",
        "r              forget what was found so far",
        "o              what the command has printed",
        "Ctrl-C         ends the command, as without top; Ctrl-Z stops both",
        "Ctrl-L         draw everything anew",
        "",
        "lost           waits for this lock since the last look, as a share of the time in which the threads",
        "               had something to do: not idle, and not waiting for requests",
        "waiting        threads that waited for it on average",
        "held avg       holds that others waited for; - where holds are not seen (futex calls)",
        "history        lost, at the last looks",
        "locks, on CPU, ready  of a thread: waiting for locks, running, runnable without a CPU, as shares of the",
        "               time since the last look",
    ];
    lines.into_iter().map(Line::from).collect()
}

#[cfg(test)]
mod tests {
    use poundlock_statfile::LockKind;
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;

    use super::super::table::ThreadRow;
    use super::*;
    use crate::stat::lost::ThreadTime;
    use crate::stat::report::ratio;

    fn row(id: usize, name: &str, kind: LockKind, waits: u64, wait_ns: u64) -> Row {
        Row {
            id,
            name: name.to_owned(),
            kind,
            waits,
            wait_ns,
            share: kind.is_acquired().then(|| ratio(wait_ns, 4_000_000_000)),
            holds: kind.is_acquired().then_some((waits, waits * 1_000)),
            waiting: 1,
            history: VecDeque::from([0.1, 0.2]),
            line: format!("held from {name}_user (a.c:7)"),
        }
    }

    fn view(first_ns: u64) -> View {
        View {
            stuck: Vec::new(),
            span_ns: 1_000_000_000,
            since_ns: 5_000_000_000,
            processes: vec![(4711, "server".to_owned())],
            threads: 4,
            time: ThreadTime { lost_ns: first_ns + 100_000_000, busy_ns: 4_000_000_000, is_sampled: true },
            history: VecDeque::from([0.5, 0.6]),
            rows: vec![
                row(1, "queue_lock", LockKind::Mutex, 10, first_ns),
                row(2, "table_lock", LockKind::Mutex, 500, 100_000_000),
                row(3, "ready", LockKind::Condition, 7, 3_000_000_000),
            ],
            by_thread: vec![ThreadRow {
                pid: 4711,
                tid: 4712,
                name: "worker".to_owned(),
                lost_ns: 250_000_000,
                doing: "waits for queue_lock, 2.00 ms".to_owned(),
                ..ThreadRow::default()
            }],
        }
    }

    /// Draws with what the pages that are texts have.
    fn draw(app: &mut App, width: u16, height: u16) -> Terminal<TestBackend> {
        let plain = |line: String| (Mark::Plain, line);
        let text = match app.page() {
            Page::Stacks(2) => {
                let lines = (0..100).map(|n| plain(format!("         frame {n}"))).collect();
                Some(Text { title: "table_lock".to_owned(), lines })
            }
            Page::Output => {
                let lines = (1..20).map(|n| plain(format!("line {n} of the command"))).collect();
                Some(Text { title: "printed".to_owned(), lines })
            }
            _ => None,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
        terminal.draw(|frame| app.draw(frame, text)).expect("it is drawn");
        terminal
    }

    /// What is on a screen of 100 columns.
    fn drawn(app: &mut App) -> Vec<String> {
        let terminal = draw(app, 100, 14);
        let buffer = terminal.backend().buffer();
        let line =
            |y: u16| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..14).map(line).collect()
    }

    fn press(app: &mut App, code: KeyCode) -> Action {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn app() -> App {
        let mut app = App::new(false, true, true);
        app.show(view(2_000_000_000));
        app
    }

    #[test]
    fn locks_come_by_the_share_of_time_lost() {
        let lines = drawn(&mut app());
        assert!(
            lines[0].contains("server (4711): 4 threads, lost 52.5 % of their time (2.10 waiting"),
            "{lines:#?}"
        );
        assert!(lines[2].starts_with("  >lost  waiting"), "{lines:#?}");
        let row = " 50.0 %     2.00      10.0     200 ms    1.00 us          ▄█  queue_lock";
        assert_eq!(lines[3], row, "{lines:#?}");
        assert!(lines[4].ends_with("table_lock") && lines[5].is_empty(), "{lines:#?}");
        assert_eq!(lines[12], "queue_lock: held from queue_lock_user (a.c:7)");
        assert!(lines[13].starts_with("q quit  Enter stacks"), "{lines:#?}");
    }

    #[test]
    fn a_selected_lock_stays_selected_wherever_it_goes() {
        let mut app = app();
        press(&mut app, KeyCode::Down);
        app.show(view(1));
        let lines = drawn(&mut app);
        assert!(lines[3].ends_with("table_lock") && lines[12].starts_with("table_lock:"), "{lines:#?}");
        assert_eq!(press(&mut app, KeyCode::Enter), Action::Nothing);
        assert!(drawn(&mut app)[2..].join("\n").starts_with("table_lock\n         frame 0\n"));
        // To the end, and no further.
        press(&mut app, KeyCode::End);
        assert!(drawn(&mut app)[11].ends_with("frame 99"));
        press(&mut app, KeyCode::Up);
        assert!(drawn(&mut app)[11].ends_with("frame 98"));
        press(&mut app, KeyCode::Esc);
        assert!(drawn(&mut app)[3].ends_with("table_lock"));
    }

    #[test]
    fn keys_sort_switch_pause_and_leave() {
        let mut app = app();
        press(&mut app, KeyCode::Char('s'));
        let lines = drawn(&mut app);
        assert!(lines[2].contains(">waits/s") && lines[3].ends_with("table_lock"), "{lines:#?}");
        press(&mut app, KeyCode::Char('w'));
        let lines = drawn(&mut app);
        assert!(lines[2].ends_with("other wait") && lines[3].contains("        -  "), "{lines:#?}");
        assert_eq!(press(&mut app, KeyCode::Char('t')), Action::Look);
        let lines = drawn(&mut app);
        let thread =
            " 25.0 %        -        -         0     4712  worker            waits for queue_lock, 2.00 ms";
        assert_eq!(lines[3], thread, "{lines:#?}");
        press(&mut app, KeyCode::Char('o'));
        let lines = drawn(&mut app);
        assert_eq!(
            [&lines[2], &lines[3], &lines[11]],
            ["printed", "line 11 of the command", "line 19 of the command"]
        );
        press(&mut app, KeyCode::Char('?'));
        assert!(drawn(&mut app)[2].starts_with("q              leave"));
        press(&mut app, KeyCode::Esc);
        press(&mut app, KeyCode::Esc);
        assert_eq!(drawn(&mut app)[3], thread);
        assert_eq!(press(&mut app, KeyCode::Char(' ')), Action::Nothing);
        assert!(app.is_paused() && drawn(&mut app)[0].starts_with("poundlock top  PAUSED  5.0 s"));
        assert_eq!(press(&mut app, KeyCode::Char(' ')), Action::Look);
        assert_eq!(press(&mut app, KeyCode::Char('q')), Action::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(app.key(control), Action::Interrupt);
    }

    #[test]
    fn the_line_of_a_place_is_seen_where_the_name_is_too_long() {
        let name = "taken in shop::Cache<int, std::string>::get<std::string (*)(int)> (src/shop.cpp:22)";
        let mut view = view(2_000_000_000);
        view.rows[0].name = name.to_owned();
        view.rows[0].line = format!("held from {}", name.trim_start_matches("taken in "));
        view.by_thread[0].doing = format!("waits for {name}, 2.00 ms");
        let mut app = App::new(false, true, true);
        app.show(view);
        let lines = drawn(&mut app);
        assert!(lines[3].contains("get<...> (shop.cpp:22)"), "{lines:#?}");
        let about = &lines[12];
        assert!(about.matches("shop.cpp:22)").count() == 2 && about.contains(": held from "), "{lines:#?}");
        press(&mut app, KeyCode::Char('t'));
        let lines = drawn(&mut app);
        assert!(lines[3].contains("(shop.cpp:22), 2.00 ms"), "{lines:#?}");
    }

    #[test]
    fn any_size_will_do() {
        let mut app = app();
        for (width, height) in [(1, 1), (20, 3), (79, 5), (200, 60)] {
            for key in ['t', 't', '?', '?', 'o', 'o'] {
                press(&mut app, KeyCode::Char(key));
                draw(&mut app, width, height);
            }
        }
    }

    #[test]
    fn small_shares_are_seen_beside_large_ones() {
        assert_eq!(spark(&VecDeque::from([0.0, 0.001, 0.5, 1.0]), 5, 1.0), "  ▁▄█");
        assert_eq!(spark(&VecDeque::from([0.0, 0.5]), 1, 0.5), "█");
    }
}
