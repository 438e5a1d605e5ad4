//! Numbers as they are typed: `8`, `1,2,4`, `10-80`, `200-1000:200`.

use std::str::FromStr;

/// More than anybody has threads for.
const MOST: u32 = 10_000;

/// See the module's documentation. In the order in which they were named, each once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers(Vec<u32>);

impl Numbers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        let number = |text: &str| match text.parse() {
            Ok(number) if (1..=MOST).contains(&number) => Ok(number),
            _ => Err(format!("'{text}' is no number from 1 to {MOST}")),
        };
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            match range.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(format!("'{range}' ends before it begins"));
                    }
                    numbers.extend((first..=last).step_by(step as usize));
                }
                None if part == range => numbers.push(number(range)?),
                None => return Err(format!("'{part}' has a step and is no range")),
            }
        }
        let mut seen = std::collections::HashSet::new();
        numbers.retain(|&number| seen.insert(number));
        Ok(Numbers(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<u32> {
        text.parse::<Numbers>().unwrap().0
    }

    #[test]
    fn numbers_lists_and_ranges() {
        assert_eq!(parse("8"), [8]);
        assert_eq!(parse("4,1,2"), [4, 1, 2]);
        assert_eq!(parse("3-5"), [3, 4, 5]);
        assert_eq!(parse("1,200-1000:400"), [1, 200, 600, 1000]);
        assert_eq!(parse("10-19:4"), [10, 14, 18]);
        assert_eq!(parse("2,1-3"), [2, 1, 3]);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0", "-4", "4-", "5-3", "1,,2", "4:2", "1-9:0", "x", "1-2-3", "10001"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }
}
