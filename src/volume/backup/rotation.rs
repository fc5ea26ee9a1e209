//! The names of backups, and which of them are kept.
//!
//! All of two days are kept, then one for each day of two weeks, one for each week of two months and
//! one for each month of two years: of each such time, the earliest.

use chrono::{DateTime, Datelike, Days, NaiveDateTime, TimeDelta, Utc};

/// Where backups are in the bucket.
pub const FOLDER: &str = "meta/";

const PREFIX: &str = "dump-";
const SUFFIX: &str = ".json.gz";
const TIME: &str = "%Y-%m-%d-%H%M%S";

/// Returns the name of a backup within its folder.
pub fn name(at: DateTime<Utc>) -> String {
    format!("{PREFIX}{}{SUFFIX}", at.format(TIME))
}

/// Returns when a backup was made, or nothing for a name that is not a backup's.
pub fn time_of(name: &str) -> Option<DateTime<Utc>> {
    let time = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let parsed = NaiveDateTime::parse_from_str(time, TIME).ok()?.and_utc();
    // Only as this format writes it: without signs, spaces and missing zeros.
    (self::name(parsed) == name).then_some(parsed)
}

/// Returns which of these backups are no longer needed.
pub fn expired(mut times: Vec<DateTime<Utc>>, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    times.sort_unstable_by(|one, other| other.cmp(one));
    let (cutoff, mut edge) = (two_years_before(now), Edge::new(now));
    let mut expired = Vec::new();
    // The backup of the current time span that is the earliest so far.
    let mut earliest = None;
    for time in times {
        if time < cutoff {
            expired.push(time);
            continue;
        }
        if time < edge.at {
            earliest = None;
            while time < edge.at {
                edge.move_back();
            }
        } else if edge.days == Edge::KEEP_ALL {
            continue;
        }
        expired.extend(earliest.replace(time));
    }
    expired
}

/// The beginning of a time span of which one backup is kept.
struct Edge {
    at: DateTime<Utc>,
    /// About how many days ago it is.
    days: u64,
}

impl Edge {
    const KEEP_ALL: u64 = 2;

    fn new(now: DateTime<Utc>) -> Self {
        Self { at: days_before(now, Self::KEEP_ALL), days: Self::KEEP_ALL }
    }

    fn move_back(&mut self) {
        let step = match self.days {
            ..14 => 1,
            14..60 => 7,
            _ => 30,
        };
        self.days += step;
        self.at = days_before(self.at, step);
    }
}

fn days_before(time: DateTime<Utc>, days: u64) -> DateTime<Utc> {
    time.checked_sub_days(Days::new(days)).unwrap_or(DateTime::<Utc>::MIN_UTC)
}

/// Of the last of February, the first of March, as Go counts.
fn two_years_before(now: DateTime<Utc>) -> DateTime<Utc> {
    let year = now.year() - 2;
    let day_after = now.checked_add_signed(TimeDelta::days(1)).unwrap_or(now);
    now.with_year(year).or_else(|| day_after.with_year(year)).unwrap_or(DateTime::<Utc>::MIN_UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    fn now() -> DateTime<Utc> {
        at("2024-06-15T12:30:00Z")
    }

    fn kept(times: &[DateTime<Utc>]) -> Vec<DateTime<Utc>> {
        let expired = expired(times.to_vec(), now());
        times.iter().copied().filter(|time| !expired.contains(time)).collect()
    }

    #[test]
    fn a_name_tells_the_time_and_other_names_do_not() {
        assert_eq!(name(now()), "dump-2024-06-15-123000.json.gz");
        assert_eq!(time_of(&name(now())), Some(now()));
        for other in [
            "dump-2024-06-15-123000.json",
            "dump-2024-06-31-123000.json.gz",
            "dump-2024-6-15-123000.json.gz",
            "dump- 024-06-15-123000.json.gz",
            "mine-2024-06-15-123000.json.gz",
            "",
        ] {
            assert_eq!(time_of(other), None, "{other}");
        }
    }

    #[test]
    fn everything_of_two_days_is_kept() {
        let hours: Vec<_> = (0..48).map(|hours| now() - TimeDelta::hours(hours)).collect();
        assert_eq!(kept(&hours), hours);
    }

    #[test]
    fn the_earliest_backup_of_a_day_is_kept() {
        let hours: Vec<_> = (49..49 + 72).map(|hours| now() - TimeDelta::hours(hours)).collect();
        let expected: Vec<_> = [72, 96, 120].map(|hours| now() - TimeDelta::hours(hours)).to_vec();
        assert_eq!(kept(&hours), expected);
    }

    #[test]
    fn backups_become_fewer_with_age_and_none_is_older_than_two_years() {
        let days: Vec<_> = (0..1000).map(|days| now() - TimeDelta::days(days)).collect();
        let kept = kept(&days);
        let age = |time: &DateTime<Utc>| (now() - time).num_days();
        let ages: Vec<i64> = kept.iter().map(age).collect();
        assert!(ages.starts_with(&[0, 1, 2, 3]), "{ages:?}");
        assert_eq!(ages.iter().filter(|age| (15..60).contains(*age)).count(), 6, "{ages:?}");
        assert!(ages.iter().all(|age| *age <= 731), "{ages:?}");
        assert!(ages.windows(2).all(|pair| pair[1] - pair[0] <= 30), "{ages:?}");
    }

    #[test]
    fn two_years_before_a_leap_day_is_the_first_of_march() {
        assert_eq!(two_years_before(at("2024-02-29T01:00:00Z")), at("2022-03-01T01:00:00Z"));
        assert_eq!(two_years_before(now()), at("2022-06-15T12:30:00Z"));
    }
}
