//! How quantities are written: few digits, and a prefix where there would be many.

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Operations a second.
    Rate,
    /// Nanoseconds.
    Time,
    /// A plain number: an index, a ratio, a count.
    Plain,
}

impl Quantity {
    /// With three significant digits and its unit.
    pub(super) fn text(self, value: f64) -> String {
        self.write(value, digits)
    }

    /// For the axis of a plot: no digits behind the point that say nothing.
    pub(super) fn tick(self, value: f64) -> String {
        self.write(value, |value| {
            let text = digits(value);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        })
    }

    fn write(self, value: f64, number: impl Fn(f64) -> String) -> String {
        let (scaled, unit) = match self {
            Quantity::Rate => scale(value, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")]),
            Quantity::Time => scale(value, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")]),
            Quantity::Plain => (value, ""),
        };
        // The space does not break: a number and its unit stay on one line.
        if unit.is_empty() { number(scaled) } else { format!("{}\u{a0}{unit}", number(scaled)) }
    }
}

/// The value in the largest unit of which it is at least one, after rounding to three digits.
fn scale(value: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let fits = |&&(size, _): &&(f64, &str)| value.abs() >= size * 0.9995;
    let &(size, unit) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    (value / size, unit)
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        size if size < 0.001 => format!("{value:.0e}"),
        size if size < 0.0995 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let rate = |value| Quantity::Rate.text(value).replace('\u{a0}', " ");
        assert_eq!(rate(12_345_678.0), "12.3 M/s");
        assert_eq!(rate(999.4), "999 /s");
        assert_eq!(rate(999_900.0), "1.00 M/s");
        assert_eq!(rate(0.0), "0 /s");
        let time = |value| Quantity::Time.text(value).replace('\u{a0}', " ");
        assert_eq!(time(45.24), "45.2 ns");
        assert_eq!(time(1_250.0), "1.25 µs");
        assert_eq!(time(2.5e9), "2.50 s");
        assert_eq!(time(1e13), "10000 s");
        assert_eq!(Quantity::Plain.text(0.034), "0.034");
        assert_eq!(Quantity::Plain.text(0.000_02), "2e-5");
    }

    #[test]
    fn ticks_have_no_idle_zeros() {
        assert_eq!(Quantity::Rate.tick(5e6), "5\u{a0}M/s");
        assert_eq!(Quantity::Time.tick(200.0), "200\u{a0}ns");
        assert_eq!(Quantity::Plain.tick(0.25), "0.25");
        assert_eq!(Quantity::Plain.tick(0.5), "0.5");
        assert_eq!(Quantity::Plain.tick(0.0), "0");
    }
}
