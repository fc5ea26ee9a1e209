//! What is mounted, and where.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::meta::engine::masked;

pub struct Places {
    /// Nothing for the embedded volume.
    pub meta: Option<Address>,
    /// Absolute.
    pub point: PathBuf,
}

/// An address of metadata, perhaps with a password in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// To connect to, and not to be shown.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Places {
    /// `[META-URL] MOUNTPOINT`. Never says what it was given: there may be a password in it.
    pub fn parse(words: &[OsString]) -> anyhow::Result<Self> {
        let (meta, point) = match words {
            [point] if is_address(point) => bail!("MOUNTPOINT is missing after META-URL"),
            [point] => (None, point),
            [meta, point] => (Some(meta), point),
            _ => bail!("there are {} arguments; META-URL and MOUNTPOINT are two", words.len()),
        };
        let meta = match meta {
            Some(meta) => Some(Address(meta.to_str().context("META-URL is not UTF-8")?.to_owned())),
            None => None,
        };
        if point.is_empty() {
            bail!("MOUNTPOINT is empty");
        }
        let point = std::path::absolute(point).context("MOUNTPOINT")?;
        Ok(Self { meta, point })
    }
}

fn is_address(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Places> {
        Places::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn one_word_is_the_mount_point_and_two_are_both() {
        let places = parse(&["/mnt/a"]).unwrap();
        assert!(places.meta.is_none());
        assert_eq!(places.point, PathBuf::from("/mnt/a"));
        let places = parse(&["redis://host/1", "mnt"]).unwrap();
        assert_eq!(places.meta.unwrap().expose(), "redis://host/1");
        assert!(places.point.is_absolute());
    }

    #[test]
    fn errors_say_what_is_missing_and_no_secret() {
        for words in [&["redis://:sesame@host/1"][..], &["redis://:sesame@host", "a", "b"], &[""]] {
            let error = parse(words).err().unwrap().to_string();
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn an_address_shows_without_its_password() {
        let address = Address::new("redis://me:sesame@host/1".to_owned());
        assert_eq!(
            format!("{address} {address:?}"),
            "redis://me:****@host/1 redis://me:****@host/1"
        );
    }
}
