//! Many small numbers in few bytes.

/// Numbers, each in as many bytes as it needs: 7 bits in a byte, the lowest first, and a bit that says whether
/// there are more.
#[derive(Default)]
pub(crate) struct Packed(Vec<u8>);

/// How many numbers are put in at once at most.
const AT_ONCE: usize = 12;

impl Packed {
    /// Adds these, [`AT_ONCE`] at most.
    pub(crate) fn put(&mut self, values: &[u64]) {
        let mut bytes = [0; AT_ONCE * 10];
        let mut len = 0;
        for &value in values {
            let mut rest = value;
            while rest >= 0x80 {
                bytes[len] = rest as u8 | 0x80;
                rest >>= 7;
                len += 1;
            }
            bytes[len] = rest as u8;
            len += 1;
        }
        self.0.extend_from_slice(&bytes[..len]);
    }

    /// All of them, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> + '_ {
        let mut bytes = self.0.iter();
        std::iter::from_fn(move || {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return Some(value);
                }
                shift += 7;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Packed;

    #[test]
    fn what_is_put_in_comes_out() {
        let values: Vec<u64> =
            (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1]).chain([u64::MAX, 0]).collect();
        let mut packed = Packed::default();
        values.chunks(super::AT_ONCE).for_each(|values| packed.put(values));
        assert_eq!(packed.values().collect::<Vec<_>>(), values);
    }
}
