//! Names in the trash: one directory per hour, with one entry per removed node, whatever directory
//! it came from.

use chrono::{DateTime, NaiveDateTime};

use crate::meta::{Ino, Name, Timestamp};

/// The name of the trash in the root. It refers to [`Ino::TRASH`], and its entry is not stored.
pub const TRASH_NAME: &str = ".trash";

const HOUR: &str = "%Y-%m-%d-%H";

/// Returns the name of the directory for nodes removed at this time: the hour in UTC.
pub fn hour_name(at: Timestamp) -> Name {
    let time = DateTime::from_timestamp(at.sec, 0).unwrap_or_default();
    Name::unchecked(time.format(HOUR).to_string())
}

/// Returns the unix second at which the hour of a directory begins; `None` if the name is not an
/// hour.
pub fn parse_hour(name: &Name) -> Option<i64> {
    let text = std::str::from_utf8(name.as_bytes()).ok()?;
    let begin = NaiveDateTime::parse_from_str(&format!("{text}-00"), &format!("{HOUR}-%M")).ok()?;
    let begin = Timestamp::from_secs(begin.and_utc().timestamp());
    (hour_name(begin) == *name).then_some(begin.sec)
}

/// A removed node, as described by the name of its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// The directory it was in.
    pub parent: Ino,
    pub ino: Ino,
    /// Its name there, possibly truncated.
    pub name: Name,
}

impl Trashed {
    /// Returns the name of the entry, truncated to the longest possible name even within a
    /// character.
    pub fn entry_name(&self) -> Name {
        let mut text = format!("{}-{}-", self.parent, self.ino).into_bytes();
        text.extend_from_slice(self.name.as_bytes());
        text.truncate(Name::MAX);
        Name::unchecked(text)
    }

    /// Parses the name of an entry in an hour directory.
    pub fn parse(entry: &Name) -> Option<Self> {
        let mut parts = entry.as_bytes().splitn(3, |byte| *byte == b'-');
        let mut ino = || {
            let digits = std::str::from_utf8(parts.next()?).ok()?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { digits.parse().ok().map(Ino) } else { None }
        };
        let (parent, ino) = (ino()?, ino()?);
        let name = Name::new(parts.next()?).ok()?;
        Some(Self { parent, ino, name })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(bytes: impl AsRef<[u8]>) -> Name {
        Name::new(bytes).unwrap()
    }

    fn trashed(parent: u64, ino: u64, of: &str) -> Trashed {
        Trashed { parent: Ino(parent), ino: Ino(ino), name: name(of) }
    }

    #[test]
    fn hours_are_named_in_utc() {
        for (sec, hour) in [
            (1_794_800_822, "2026-11-16-03"),
            (0, "1970-01-01-00"),
            (-1, "1969-12-31-23"),
            (1_709_251_199, "2024-02-29-23"),
        ] {
            assert_eq!(hour_name(Timestamp::from_secs(sec)), name(hour));
            assert_eq!(parse_hour(&name(hour)), Some(sec - sec.rem_euclid(3600)));
        }
    }

    #[test]
    fn other_names_are_not_hours() {
        for other in [
            "x",
            "2026-11-16",
            "2026-11-16-24",
            "2026-13-01-00",
            "2023-02-29-00",
            "2026-1-6-3",
            "2026-11-16-03-00",
            " 2026-11-16-03",
            "2026-11-16-03 ",
            "+2026-11-16-03",
        ] {
            assert_eq!(parse_hour(&name(other)), None, "{other}");
        }
        assert_eq!(parse_hour(&Name::unchecked(&b"\xff"[..])), None);
    }

    #[test]
    fn entry_names_contain_parent_inode_and_name() {
        for (node, entry) in [
            (trashed(2, 5, "s"), "2-5-s"),
            (trashed(1, 8, "a-b-c"), "1-8-a-b-c"),
            (trashed(9_223_372_036_854_775_807, 3, "-"), "9223372036854775807-3--"),
        ] {
            assert_eq!(node.entry_name(), name(entry));
            assert_eq!(Trashed::parse(&name(entry)), Some(node));
        }
    }

    #[test]
    fn long_entry_names_are_truncated_even_within_a_character() {
        let long = "é".repeat(127);
        let entry = trashed(2, 33, &long).entry_name();
        assert_eq!(entry.as_bytes().len(), 255);
        assert_eq!(&entry.as_bytes()[..7], "2-33-é".as_bytes());
        assert_eq!(entry.as_bytes()[254], 0xa9);
        let entry = trashed(2, 3, &long).entry_name();
        assert_eq!(entry.as_bytes()[254], 0xc3);
        let back = Trashed::parse(&entry).unwrap();
        assert_eq!(back.name.as_bytes(), &long.as_bytes()[..251]);
    }

    #[test]
    fn other_entry_names_do_not_parse() {
        for entry in [
            "x",
            "1-2",
            "1-2-",
            "a-2-x",
            "1-b-x",
            "-1-2-x",
            "+1-2-x",
            "1-2-.",
            "1-2-..",
            "99999999999999999999-1-x",
        ] {
            assert_eq!(Trashed::parse(&name(entry)), None, "{entry}");
        }
    }

    proptest! {
        #[test]
        fn entries_parse_back(parent: u64, ino: u64, of in "[^/\0]{1,20}") {
            prop_assume!(of != "." && of != "..");
            let node = trashed(parent, ino, &of);
            prop_assert_eq!(Trashed::parse(&node.entry_name()), Some(node));
        }

        #[test]
        fn hours_parse_back(sec in 0i64..253_402_300_800) {
            let hour = hour_name(Timestamp::from_secs(sec));
            prop_assert_eq!(parse_hour(&hour), Some(sec - sec % 3600));
        }

        #[test]
        fn any_name_parses_or_does_not(of in prop::collection::vec(any::<u8>(), 0..30)) {
            let entry = Name::unchecked(of);
            let _ = (parse_hour(&entry), Trashed::parse(&entry));
        }
    }
}
