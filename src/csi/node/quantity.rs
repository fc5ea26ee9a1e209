//! Kubernetes quantities in bytes: `10Gi`, `500M`, `1e9`, `1.5Ti`.

/// Parses a quantity. `None` if it is invalid or not a whole number of bytes.
pub fn parse(text: &str) -> Option<u64> {
    const SUFFIXES: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("", 1.0),
    ];
    if let Ok(bytes) = text.parse() {
        return Some(bytes);
    }
    let (number, factor) =
        SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    let plain = number.starts_with(|c: char| c.is_ascii_digit());
    let bytes = number.parse::<f64>().ok().filter(|_| plain)? * factor;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    (bytes.fract() == 0.0 && bytes < 18e18).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_quantities_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("123", 123),
            ("10Gi", 10 << 30),
            ("1.5Ki", 1536),
            ("500M", 500_000_000),
            ("1k", 1000),
            ("1e9", 1_000_000_000),
            ("2E", 2_000_000_000_000_000_000),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_quantities_are_none() {
        for text in ["", "Gi", "-1", "1.5", "10GiB", "much", "inf", "1e300"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
