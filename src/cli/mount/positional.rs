//! The positional arguments `[META-URL] MOUNTPOINT`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::cli::meta_url::{MetaUrl, is_url};

pub struct Positional {
    /// `None` for the embedded volume.
    pub meta_url: Option<MetaUrl>,
    /// Absolute.
    pub mount_point: PathBuf,
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
            Some(url) => {
                Some(MetaUrl::new(url.to_str().context("META-URL is not UTF-8")?.to_owned()))
            }
            None => None,
        };
        if mount_point.is_empty() {
            bail!("MOUNTPOINT is empty");
        }
        let mount_point = std::path::absolute(mount_point).context("MOUNTPOINT")?;
        Ok(Self { meta_url, mount_point })
    }
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
}
