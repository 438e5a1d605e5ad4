//! Medians, spreads, ratios and fairness.

use serde::{Deserialize, Serialize};

/// The median of repeated measurements, with their spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle value; the mean of the two middle ones if their number is even.
    pub median: f64,
    /// The lower quartile.
    pub q1: f64,
    /// The upper quartile.
    pub q3: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// How many values there were.
    pub n: usize,
}

impl Summary {
    /// Summarises `values`; `None` if there are none, or if one is not a number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        Some(Summary {
            median: quantile(&values, 0.5),
            q1: quantile(&values, 0.25),
            q3: quantile(&values, 0.75),
            min: values[0],
            max: values[values.len() - 1],
            n: values.len(),
        })
    }

    /// The same in another unit, of which `factor` make one.
    pub fn scaled(self, factor: f64) -> Summary {
        let Summary { median, q1, q3, min, max, n } = self;
        let [median, q1, q3, min, max] = [median, q1, q3, min, max].map(|value| value * factor);
        Summary { median, q1, q3, min, max, n }
    }

    /// A ratio in a sentence: the median, and the smallest and the largest.
    pub fn words(&self) -> String {
        format!("{:.2} ({:.2}..{:.2})", self.median, self.min, self.max)
    }

    /// Summarises the round by round ratios of `values` to `reference`.
    ///
    /// The ratio is taken inside each round and the median over the rounds: what disturbs a whole round
    /// disturbs both sides of it. Rounds that either side lacks do not count.
    pub fn of_ratios(values: &[Option<f64>], reference: &[Option<f64>]) -> Option<Summary> {
        Self::of_pairs(values, reference, |value, reference| value / reference)
    }

    /// Summarises the round by round differences of `values` to `reference`.
    pub fn of_differences(values: &[Option<f64>], reference: &[Option<f64>]) -> Option<Summary> {
        Self::of_pairs(values, reference, |value, reference| value - reference)
    }

    /// Summarises the round by round comparisons of `a` with `b`.
    pub fn of_pairs(a: &[Option<f64>], b: &[Option<f64>], f: impl Fn(f64, f64) -> f64) -> Option<Summary> {
        Summary::of(a.iter().zip(b).filter_map(|(a, b)| Some(f((*a)?, (*b)?))))
    }
}

/// The `q`-quantile of sorted values, interpolated between neighbours.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// Jain's fairness index of the threads' shares: 1 if all got the same, 1/n if one got everything.
///
/// `None` if nobody got anything.
pub fn jain(counts: &[u64]) -> Option<f64> {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (counts.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_medians() {
        assert_eq!(Summary::of([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of([7.0]).unwrap().median, 7.0);
    }

    #[test]
    fn quartiles_and_extremes() {
        let summary = Summary::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((summary.min, summary.q1, summary.q3, summary.max, summary.n), (1.0, 2.0, 4.0, 5.0, 5));
    }

    #[test]
    fn nothing_and_nonsense_have_no_summary() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([1.0, f64::NAN]), None);
    }

    #[test]
    fn ratios_are_taken_inside_a_round() {
        // Every round doubles the time of the one before; the ratio stays 2 in each. The ratio of the medians
        // of unpaired values would only agree by luck.
        let reference = [Some(1.0), Some(2.0), None, Some(40.0)];
        let values = [Some(2.0), Some(4.0), Some(9.0), Some(80.0)];
        let ratios = Summary::of_ratios(&values, &reference).unwrap();
        assert_eq!((ratios.min, ratios.median, ratios.max, ratios.n), (2.0, 2.0, 2.0, 3));
        let differences = Summary::of_differences(&values, &reference).unwrap();
        assert_eq!((differences.min, differences.median, differences.max), (1.0, 2.0, 40.0));
    }

    #[test]
    fn one_slow_round_does_not_move_the_median_ratio() {
        let reference = [Some(10.0), Some(10.0), Some(10.0), Some(10.0), Some(10.0)];
        let values = [Some(8.0), Some(8.0), Some(800.0), Some(8.0), Some(8.0)];
        assert_eq!(Summary::of_ratios(&values, &reference).unwrap().median, 0.8);
    }

    #[test]
    fn jain_at_its_ends() {
        assert_eq!(jain(&[5, 5, 5, 5]), Some(1.0));
        assert_eq!(jain(&[20, 0, 0, 0]), Some(0.25));
        assert_eq!(jain(&[0, 0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn jain_in_between() {
        // (1+2+3)^2 / (3 * (1+4+9)) = 36/42
        assert!((jain(&[1, 2, 3]).unwrap() - 36.0 / 42.0).abs() < 1e-12);
    }

    #[test]
    fn jain_of_large_counts_does_not_overflow() {
        assert_eq!(jain(&[u64::MAX, u64::MAX]), Some(1.0));
    }
}
