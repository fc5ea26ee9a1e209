//! Client versions: their grammar and order, and the versions that a setting allows.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::Setting;
use crate::error::{Error, Result};

/// The version of this client in session records. Other clients parse it and compare the part
/// before the `+`: the JuiceFS release whose metadata this client fully supports.
pub const CLIENT_VERSION: &str = concat!("1.4.1+jfs-", env!("CARGO_PKG_VERSION"));

/// The newest metadata layout that this client supports.
pub const MAX_META_VERSION: i64 = 1;

/// `[major[.minor[.patch]]][-pre][+build]`; the build is ignored.
///
/// Unlike in semver, pre-releases compare as plain text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
    /// Empty for a release.
    pub pre: String,
}

impl Version {
    /// The version of [`CLIENT_VERSION`].
    pub const fn client() -> Self {
        Self { major: 1, minor: 4, patch: 1, pre: String::new() }
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::bad_input(format!("{text:?} is not a version"));
        // A leading `+` or `-` separates nothing; the number after it then fails to parse.
        let cut = |text: &str, at| text.find(at).filter(|at| *at > 0);
        let numbered = cut(text, '+').map_or(text, |at| &text[..at]);
        let (numbers, pre) = match cut(numbered, '-') {
            Some(at) => (&numbered[..at], &numbered[at + 1..]),
            None => (numbered, ""),
        };
        let mut parts = [0; 3];
        for (i, number) in numbers.split('.').enumerate() {
            // `u64::from_str` alone would accept a sign.
            if !number.bytes().all(|b| b.is_ascii_digit()) {
                return Err(bad());
            }
            *parts.get_mut(i).ok_or_else(bad)? = number.parse().map_err(|_| bad())?;
        }
        let [major, minor, patch] = parts;
        Ok(Self { major, minor, patch, pre: pre.to_owned() })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.pre.is_empty() { Ok(()) } else { write!(f, "-{}", self.pre) }
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |v: &Self| (v.major, v.minor, v.patch);
        numbers(self)
            .cmp(&numbers(other))
            // A release comes after all its pre-releases.
            .then_with(|| self.pre.is_empty().cmp(&other.pre.is_empty()))
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Setting {
    /// Returns an error if a client of this version must not use the volume.
    pub fn check_version(&self, client: &Version) -> Result<()> {
        self.check_meta_version()?;
        let bound = |field: &str, text: &str| match text {
            "" => Ok(None),
            text => match text.parse::<Version>() {
                Ok(version) => Ok(Some(version)),
                Err(error) => Err(Error::damaged("setting", format!("{field}: {error}"))),
            },
        };
        if let Some(min) = bound("MinClientVersion", &self.min_client_version)?
            && *client < min
        {
            return Err(Error::Refused(format!(
                "volume {} needs client version {min} or newer; this client is {client}",
                self.name
            )));
        }
        if let Some(max) = bound("MaxClientVersion", &self.max_client_version)?
            && *client > max
        {
            return Err(Error::Refused(format!(
                "volume {} allows client version {max} at most; this client is {client}",
                self.name
            )));
        }
        Ok(())
    }

    /// Returns an error if this client cannot read the volume's metadata. Checked at every reload.
    pub fn check_meta_version(&self) -> Result<()> {
        if self.meta_version > MAX_META_VERSION {
            return Err(Error::Refused(format!(
                "volume {} has metadata version {}; this client supports at most {MAX_META_VERSION}",
                self.name, self.meta_version
            )));
        }
        Ok(())
    }

    /// Raises `MinClientVersion` to `at_least`; never lowers it.
    ///
    /// An invalid version counts as the lowest, since no client could satisfy it.
    pub fn require_client(&mut self, at_least: &str) {
        let parsed = |text: &str| text.parse::<Version>().ok();
        if parsed(&self.min_client_version) < parsed(at_least) {
            at_least.clone_into(&mut self.min_client_version);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn gated(min: &str, max: &str) -> Setting {
        Setting {
            name: "vol".into(),
            min_client_version: min.into(),
            max_client_version: max.into(),
            ..Setting::default()
        }
    }

    #[test]
    fn versions_may_omit_parts() {
        for (text, canonical) in [
            ("1", "1.0.0"),
            ("1.2", "1.2.0"),
            ("1.2.3", "1.2.3"),
            ("1.1.0-A", "1.1.0-A"),
            ("1.4.1+2026-07-30.0b90c7db5", "1.4.1"),
            ("1.3.0-rc.1-x+b-1", "1.3.0-rc.1-x"),
            ("1.0-", "1.0.0"),
            ("1-beta", "1.0.0-beta"),
            ("01.002", "1.2.0"),
        ] {
            assert_eq!(version(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn invalid_versions_are_errors() {
        for text in [
            "",
            "v1.2",
            "1.2.3.4",
            "+1",
            "-1",
            "1.-",
            "1.+2",
            "1..2",
            "1.2.x",
            "1. 2",
            "99999999999999999999",
            "٣",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn versions_are_ordered_by_number_then_by_pre_release_text() {
        let ascending = [
            "0.9",
            "1.0.0-alpha",
            "1.0",
            "1.1.0-A",
            "1.1.0-B",
            "1.1.0-beta1",
            "1.1.0-beta10",
            "1.1.0-beta2",
            "1.1.0",
            "1.1.1",
            "1.2",
            "1.10",
            "2",
        ];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("1.4.1+a"), version("1.4.1+b"));
    }

    #[test]
    fn the_version_in_sessions_is_the_one_used_in_comparisons() {
        assert_eq!(version(CLIENT_VERSION), Version::client());
    }

    #[test]
    fn a_client_within_the_bounds_is_allowed() {
        for (min, max) in [("", ""), ("1.1.0-A", ""), ("1.4.1", "1.4.1"), ("1.4", "1.9")] {
            gated(min, max).check_version(&Version::client()).unwrap();
        }
    }

    #[test]
    fn a_client_out_of_bounds_is_refused_with_the_bound() {
        let error = gated("1.5.0-A", "").check_version(&Version::client()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "volume vol needs client version 1.5.0-A or newer; this client is 1.4.1"
        );
        let error = gated("", "1.4.1-rc1").check_version(&Version::client()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "volume vol allows client version 1.4.1-rc1 at most; this client is 1.4.1"
        );
        let newer = Setting { meta_version: 2, ..gated("", "") };
        let error = newer.check_version(&Version::client()).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(error.to_string().contains("metadata version 2"), "{error}");
    }

    #[test]
    fn an_invalid_bound_is_damage() {
        for setting in [gated("latest", ""), gated("", "1.2.3.4")] {
            let error = setting.check_version(&Version::client()).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        }
    }

    #[test]
    fn the_lower_bound_only_rises() {
        let mut setting = gated("", "");
        for (ask, want) in [("1.1.0-A", "1.1.0-A"), ("1.3.0-A", "1.3.0-A"), ("1.2.0-A", "1.3.0-A")]
        {
            setting.require_client(ask);
            assert_eq!(setting.min_client_version, want);
        }
    }

    proptest! {
        #[test]
        fn a_formatted_version_parses_to_the_same(
            major: u64, minor: u64, patch: u64, pre in "[A-Za-z0-9.-]{0,8}"
        ) {
            let shown = Version { major, minor, patch, pre };
            prop_assert_eq!(version(&shown.to_string()), shown);
        }

        #[test]
        fn any_text_parses_or_fails(text: String) {
            let _ = text.parse::<Version>();
        }
    }
}
