//! The address of the metadata, given or that of the embedded volume.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::meta::engine::masked;
use crate::options::default_paths::user_path;

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

/// Returns whether a word is a URL rather than a path.
pub fn is_url(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.contains("://"))
}

/// Argument of a command on an existing volume: `[META-URL]`.
#[derive(Args)]
pub struct VolumeUrl {
    /// Address of the metadata; without it, the embedded volume of this host
    #[arg(value_name = "META-URL")]
    meta: Option<String>,
    /// Folder of the embedded volume, if META-URL is left out
    #[arg(long, value_name = "DIR", conflicts_with = "meta")]
    data_dir: Option<PathBuf>,
}

/// Shows no arguments: there may be a password in META-URL.
impl fmt::Debug for VolumeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeUrl").finish_non_exhaustive()
    }
}

impl VolumeUrl {
    pub fn new(meta: Option<String>, data_dir: Option<PathBuf>) -> Self {
        Self { meta, data_dir }
    }

    /// Returns the address of the volume: the given one, or else that of the embedded volume, which
    /// must exist.
    pub fn resolve(&self) -> anyhow::Result<MetaUrl> {
        match &self.meta {
            Some(_) if self.data_dir.is_some() => {
                bail!("--data-dir is for the embedded volume, but META-URL names another")
            }
            Some(url) => Ok(MetaUrl(url.clone())),
            None => {
                let dir = embedded_folder(self.data_dir.as_deref())?;
                check_embedded(&dir)?;
                embedded_url(&dir)
            }
        }
    }
}

/// Fails unless there is an embedded volume: connecting would create an empty database.
pub fn check_embedded(dir: &Path) -> anyhow::Result<()> {
    if !dir.join("meta.db").exists() {
        bail!("there is no embedded volume in {}: name another by META-URL", dir.display());
    }
    Ok(())
}

/// Arguments of a command that names a volume and possibly a file: `[META-URL] [FILE]`.
#[derive(Args)]
pub struct VolumeAndFile {
    /// Address of the metadata, unless it is the embedded volume, and a file
    #[arg(value_name = "META-URL] [FILE", num_args = 0..=2)]
    words: Vec<OsString>,
    /// Folder of the embedded volume, if META-URL is left out
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Shows no arguments: there may be a password in META-URL.
impl fmt::Debug for VolumeAndFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeAndFile").finish_non_exhaustive()
    }
}

impl VolumeAndFile {
    /// Returns the address of the volume and the file, if there is one. A single word is META-URL if
    /// it has a scheme, otherwise FILE.
    pub fn resolve(&self) -> anyhow::Result<(MetaUrl, Option<PathBuf>)> {
        let (url, file) = match self.words.as_slice() {
            [] => (None, None),
            [word] if is_url(word) => (Some(word), None),
            [word] => (None, Some(word)),
            [url, file] => (Some(url), Some(file)),
            words => bail!("expected META-URL and FILE, got {} arguments", words.len()),
        };
        let file = file.map(PathBuf::from);
        let url = match url {
            Some(_) if self.data_dir.is_some() => {
                bail!("--data-dir is for the embedded volume, but META-URL names another")
            }
            Some(url) => MetaUrl(url.to_str().context("META-URL is not UTF-8")?.to_owned()),
            None => embedded_url(&embedded_folder(self.data_dir.as_deref())?)?,
        };
        Ok((url, file))
    }

    /// Returns the folder of the embedded volume, unless another one is named.
    pub fn embedded(&self) -> anyhow::Result<Option<PathBuf>> {
        let is_other = match self.words.as_slice() {
            [word] => is_url(word),
            words => words.len() > 1,
        };
        if is_other {
            return Ok(None);
        }
        embedded_folder(self.data_dir.as_deref()).map(Some)
    }

    /// Returns the only word, for a command that needs no volume.
    pub fn only_file(&self) -> anyhow::Result<&Path> {
        match self.words.as_slice() {
            [file] => Ok(Path::new(file)),
            words => bail!("expected FILE alone, got {} arguments", words.len()),
        }
    }
}

/// Returns the folder of the embedded volume: the given one, that of the environment, or the
/// default.
pub fn embedded_folder(option: Option<&Path>) -> anyhow::Result<PathBuf> {
    let from_env = || std::env::var_os("JFS_DATA_DIR").filter(|dir| !dir.is_empty());
    let dir = match option {
        Some(dir) => dir.to_owned(),
        None => from_env().map_or_else(default_folder, PathBuf::from),
    };
    std::path::absolute(&dir).with_context(|| format!("--data-dir {}", dir.display()))
}

/// Returns the metadata URL of the embedded volume in this folder.
pub fn embedded_url(dir: &Path) -> anyhow::Result<MetaUrl> {
    let db = dir.join("meta.db");
    let db = db.to_str().with_context(|| format!("{}: not UTF-8", dir.display()))?;
    if db.contains('?') {
        bail!("{}: the path must not contain a question mark", dir.display());
    }
    Ok(MetaUrl::new(format!("sqlite3://{db}")))
}

fn default_folder() -> PathBuf {
    if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|dir| !dir.is_empty())
        && !nix::unistd::geteuid().is_root()
    {
        return PathBuf::from(data).join("jfs");
    }
    user_path("/var/lib/jfs", ".local/share/jfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(words: &[&str]) -> anyhow::Result<(MetaUrl, Option<PathBuf>)> {
        let words = words.iter().map(OsString::from).collect();
        VolumeAndFile { words, data_dir: None }.resolve()
    }

    #[test]
    fn a_url_is_displayed_without_its_password() {
        let url = MetaUrl::new("redis://me:sesame@host/1".to_owned());
        assert_eq!(format!("{url} {url:?}"), "redis://me:****@host/1 redis://me:****@host/1");
    }

    #[test]
    fn a_single_word_is_a_url_only_with_a_scheme() {
        let (url, file) = resolve(&["redis://host/1"]).unwrap();
        assert_eq!((url.expose(), file), ("redis://host/1", None));
        let (url, file) = resolve(&["dump.json"]).unwrap();
        assert!(url.expose().starts_with("sqlite3://"), "{url}");
        assert_eq!(file, Some("dump.json".into()));
        let (url, file) = resolve(&["localhost/1", "dump.json"]).unwrap();
        assert_eq!((url.expose(), file), ("localhost/1", Some("dump.json".into())));
    }

    #[test]
    fn without_a_url_the_embedded_volume_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let embedded = VolumeUrl::new(None, Some(folder.path().to_owned()));
        let error = embedded.resolve().unwrap_err().to_string();
        assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        std::fs::write(folder.path().join("meta.db"), "").unwrap();
        let url = embedded.resolve().unwrap();
        assert_eq!(url.expose(), format!("sqlite3://{}/meta.db", folder.path().display()));
        let both = VolumeUrl::new(Some("redis://h".to_owned()), Some("/x".into()));
        assert!(both.resolve().unwrap_err().to_string().contains("--data-dir"));
    }

    #[test]
    fn errors_do_not_show_the_password() {
        let words = ["redis://:sesame@host/1", "a", "b"].map(OsString::from).to_vec();
        let volume = VolumeAndFile { words, data_dir: None };
        assert!(!volume.resolve().unwrap_err().to_string().contains("sesame"));
        assert!(!format!("{volume:?}").contains("sesame"));
    }
}
