//! The positional arguments `[META-URL] MOUNTPOINT`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::meta::engine::masked;

pub struct Positional {
    /// `None` for the embedded volume.
    pub meta_url: Option<MetaUrl>,
    /// Absolute.
    pub mount_point: PathBuf,
}

/// The URL of a metadata engine. It may hold a password, which is masked when it is displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct MetaUrl(String);

impl MetaUrl {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the URL with its password: to connect with, never to show.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MetaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for MetaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Positional {
    /// Parses the arguments. Errors do not quote them: there may be a password in them.
    pub fn parse(words: &[OsString]) -> anyhow::Result<Self> {
        let (meta_url, mount_point) = match words {
            [point] if is_url(point) => bail!("MOUNTPOINT is missing after META-URL"),
            [point] => (None, point),
            [meta, point] => (Some(meta), point),
            _ => bail!("expected META-URL and MOUNTPOINT, got {} arguments", words.len()),
        };
        let meta_url = match meta_url {
            Some(url) => Some(MetaUrl(url.to_str().context("META-URL is not UTF-8")?.to_owned())),
            None => None,
        };
        if mount_point.is_empty() {
            bail!("MOUNTPOINT is empty");
        }
        let mount_point = std::path::absolute(mount_point).context("MOUNTPOINT")?;
        Ok(Self { meta_url, mount_point })
    }
}

fn is_url(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Positional> {
        Positional::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_single_argument_is_the_mount_point() {
        let positional = parse(&["/mnt/a"]).unwrap();
        assert!(positional.meta_url.is_none());
        assert_eq!(positional.mount_point, PathBuf::from("/mnt/a"));
        let positional = parse(&["redis://host/1", "mnt"]).unwrap();
        assert_eq!(positional.meta_url.unwrap().expose(), "redis://host/1");
        assert!(positional.mount_point.is_absolute());
    }

    #[test]
    fn errors_do_not_show_the_password() {
        for words in [&["redis://:sesame@host/1"][..], &["redis://:sesame@host", "a", "b"], &[""]] {
            let error = parse(words).err().unwrap().to_string();
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn a_url_is_displayed_without_its_password() {
        let url = MetaUrl::new("redis://me:sesame@host/1".to_owned());
        assert_eq!(format!("{url} {url:?}"), "redis://me:****@host/1 redis://me:****@host/1");
    }
}
