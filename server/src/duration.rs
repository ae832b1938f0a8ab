//! Lengths of time as people write them: `500ms`, `5s`, `10m`, `2h`, `30d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The milliseconds that `text` names, or `None` where it is no whole number with a unit of
/// `ms`, `s`, `m`, `h` or `d`, or overflows.
pub(crate) fn parse_ms(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = UNITS.iter().find(|known| known.0 == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// [`parse_ms`] as a [`Duration`].
pub(crate) fn parse(text: &str) -> Option<Duration> {
    parse_ms(text).map(Duration::from_millis)
}

/// `ms` in the largest unit that divides it: the inverse of [`parse_ms`].
pub(crate) fn format_ms(ms: u64) -> String {
    let (unit, scale) = UNITS
        .into_iter()
        .rev()
        .find(|(_, scale)| ms != 0 && ms.is_multiple_of(*scale))
        .unwrap_or(("s", 1000));
    format!("{}{unit}", ms / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_with_a_unit_are_read() {
        let table = [("500ms", 500), ("5s", 5000), ("10m", 600_000), ("2h", 7_200_000), ("0s", 0)];
        for (text, ms) in table {
            assert_eq!(parse_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in ["", "5", "s", "-5s", "1.5s", "5 s", "5S", "5w", "+5s", "99999999999999999d"] {
            assert_eq!(parse_ms(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        for ms in [0, 1, 999, 1000, 1500, 60_000, 600_000, 90_000, 3_600_000, 2_592_000_000] {
            assert_eq!(parse_ms(&format_ms(ms)), Some(ms));
        }
        assert_eq!(format_ms(600_000), "10m");
    }
}
