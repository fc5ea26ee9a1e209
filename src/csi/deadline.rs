//! The deadline of a call.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The deadline of calls without one. All calls of Kubernetes have one.
const DEFAULT: Duration = Duration::from_mins(2);
/// Time for the response to reach the caller.
const MARGIN: Duration = Duration::from_millis(500);

/// The time by which a call must be answered.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline of a call, a little before its caller gives up.
    pub fn of(metadata: &MetadataMap) -> Self {
        let timeout = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
        let limit = timeout.and_then(parse).unwrap_or(DEFAULT).min(Duration::from_hours(24));
        Self(Instant::now() + limit.saturating_sub(MARGIN.min(limit / 4)))
    }

    pub fn within(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    pub fn instant(self) -> Instant {
        self.0
    }

    /// Returns the remaining time.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Parses `grpc-timeout`: at most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number.saturating_mul(3600)),
        'M' => Duration::from_secs(number.saturating_mul(60)),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_and_a_unit() {
        for (text, want) in [
            ("2S", Some(Duration::from_secs(2))),
            ("150m", Some(Duration::from_millis(150))),
            ("1H", Some(Duration::from_hours(1))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("", None),
            ("S", None),
            ("1x", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_ready_before_the_caller_gives_up() {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", "2S".parse().unwrap());
        assert_eq!(Deadline::of(&metadata).remaining(), Duration::from_millis(1500));
        metadata.insert("grpc-timeout", "100m".parse().unwrap());
        assert_eq!(Deadline::of(&metadata).remaining(), Duration::from_millis(75));
    }
}
