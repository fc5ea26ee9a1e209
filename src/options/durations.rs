//! Durations: seconds, or numbers with units.

use std::time::Duration;

use anyhow::{Context, bail};

/// Parses seconds (`1.5`), or numbers with units from days to nanoseconds (`2d3h`, `300ms`). Empty text
/// is zero.
pub fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    if text.is_empty() {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        bail!("duration {text:?}: must not be negative");
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return from_seconds(text, seconds);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - tail.len()];
        let number: f64 =
            number.parse().with_context(|| format!("duration {text:?}: not a number"))?;
        rest = tail.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '.');
        total += number * seconds_of(text, &tail[..tail.len() - rest.len()])?;
    }
    from_seconds(text, total)
}

/// Parses whole seconds; a fraction is cut off.
pub fn parse_seconds(text: &str) -> anyhow::Result<i64> {
    Ok(i64::try_from(parse_duration(text)?.as_secs())?)
}

fn seconds_of(text: &str, unit: &str) -> anyhow::Result<f64> {
    Ok(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => bail!("duration {text:?}: unknown unit {unit:?}, use d, h, m, s or ms"),
    })
}

fn from_seconds(text: &str, seconds: f64) -> anyhow::Result<Duration> {
    // A century: anything longer is a typing error.
    if !(0.0..3.2e9).contains(&seconds) {
        bail!("duration {text:?}: out of range");
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_units() {
        for (text, millis) in [
            ("", 0),
            ("0", 0),
            ("1", 1000),
            ("1.5", 1500),
            ("300ms", 300),
            ("1.0s", 1000),
            ("2d3h", 183_600_000),
            ("0.5d", 43_200_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s", 93_784_000),
            ("2000us", 2),
        ] {
            assert_eq!(parse_duration(text).expect(text), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        let error = parse_duration("-1s").unwrap_err().to_string();
        assert!(error.contains("negative"), "{error}");
        for text in ["-1", "-1s", "s", "1x", "2 weeks", "1m2", "inf", "nan", "1e300"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_whole() {
        for (text, seconds) in [("7200", 7200), ("2h", 7200), ("1500ms", 1)] {
            assert_eq!(parse_seconds(text).expect(text), seconds);
        }
    }
}
