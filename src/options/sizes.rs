//! Sizes, rates and counts: parsed from options, and displayed.

use std::fmt;

use anyhow::{Context, bail};

const UNITS: &[u8] = b"BKMGTPE";

/// Parses bytes: a number with an optional unit letter (powers of 1024); `unit` if there is none.
pub fn parse_bytes(text: &str, unit: u8) -> anyhow::Result<u64> {
    let (number, letter) = match text.as_bytes().last() {
        Some(last) if last.is_ascii_alphabetic() => (&text[..text.len() - 1], *last),
        _ => (text, unit),
    };
    let Some(power) = UNITS.iter().position(|known| *known == letter.to_ascii_uppercase()) else {
        bail!("size {text:?}: unknown unit {:?}, use one of B K M G T P E", char::from(letter));
    };
    let number: f64 = number.parse().with_context(|| format!("size {text:?}: not a number"))?;
    let bytes = number * 1024f64.powi(i32::try_from(power)?);
    if !(0.0..18_446_744_073_709_551_615.0).contains(&bytes) {
        bail!("size {text:?}: out of range");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(bytes as u64)
}

/// Parses a size with the default unit GiB, that of capacities.
pub fn parse_capacity(text: &str) -> anyhow::Result<u64> {
    parse_bytes(text, b'G')
}

/// Parses a size with the default unit KiB, that of block sizes.
pub fn parse_block_size(text: &str) -> anyhow::Result<u64> {
    parse_bytes(text, b'K')
}

/// Parses a size with the default unit MiB, that of buffers and caches.
pub fn parse_mebibytes(text: &str) -> anyhow::Result<u64> {
    parse_bytes(text, b'M')
}

/// Parses a size with the default unit byte.
pub fn parse_plain_bytes(text: &str) -> anyhow::Result<u64> {
    parse_bytes(text, b'B')
}

/// Parses a rate in Mbps; `K`, `M`, `G`, `T`, `P` (powers of 1000) may follow.
pub fn parse_mbps(text: &str) -> anyhow::Result<i64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "M" | "MBPS" => 1.0,
        "K" | "KBPS" => 0.001,
        "G" | "GBPS" => 1e3,
        "T" | "TBPS" => 1e6,
        "P" | "PBPS" => 1e9,
        other => bail!("rate {text:?}: unknown unit {other:?}, use one of K M G T P"),
    };
    let number: f64 = digits.parse().with_context(|| format!("rate {text:?}: not a number"))?;
    if !(0.0..1e12).contains(&(number * factor)) {
        bail!("rate {text:?}: out of range");
    }
    #[allow(clippy::cast_possible_truncation, reason = "checked above")]
    Ok((number * factor) as i64)
}

/// Displays bytes: `1.0 GiB`, `12 MiB`, `0 B`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 10 {
            return write!(f, "{} B", self.0);
        }
        let power = (self.0.ilog2() / 10) as usize;
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let scaled = (self.0 as f64 / 1024f64.powi(i32::try_from(power).unwrap_or(0)) * 10.0 + 0.5)
            .floor()
            / 10.0;
        if scaled < 10.0 {
            write!(f, "{scaled:.1} {}", NAMES[power])
        } else {
            write!(f, "{scaled:.0} {}", NAMES[power])
        }
    }
}

/// Displays a count with thousands separated: `1,234,567`.
pub struct Count(pub i64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.unsigned_abs().to_string();
        let mut text = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        write!(f, "{}{text}", if self.0 < 0 { "-" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_or_the_default_one() {
        for (text, unit, bytes) in [
            ("1", b'G', 1 << 30),
            ("10M", b'G', 10 << 20),
            ("4m", b'K', 4 << 20),
            ("4096", b'K', 4 << 20),
            ("0.5", b'G', 1 << 29),
            ("7B", b'K', 7),
            ("0", b'G', 0),
        ] {
            assert_eq!(parse_bytes(text, unit).expect(text), bytes, "{text}");
        }
        for bad in ["", "x", "-1", "1X", "1e40", "M"] {
            assert!(parse_bytes(bad, b'K').is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_displayed_as_in_the_go_client() {
        for (bytes, text) in [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 20, "10 MiB"),
            (1 << 30, "1.0 GiB"),
            (150 << 30, "150 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn counts_are_separated_by_thousands() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (-1_234_567, "-1,234,567")] {
            assert_eq!(Count(count).to_string(), text);
        }
    }
}
