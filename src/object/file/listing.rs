//! Listing: the files below a root, in byte order of their keys.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};

use super::super::Object;

/// A name in a directory, with a trailing slash if it is a directory: keys are ordered this way.
struct Name {
    text: String,
    is_dir: bool,
}

pub fn list(root: &str, prefix: &str, after: &str, limit: usize) -> io::Result<Vec<Object>> {
    let mut walk = Walk { root, prefix, after, limit, found: Vec::new() };
    let begin = format!("{root}{prefix}");
    let end = begin.rfind('/').map_or(0, |slash| slash + 1);
    walk.visit(&begin[..end])?;
    Ok(walk.found)
}

struct Walk<'a> {
    root: &'a str,
    prefix: &'a str,
    after: &'a str,
    limit: usize,
    found: Vec<Object>,
}

impl Walk<'_> {
    /// Lists a directory, given with a trailing slash.
    fn visit(&mut self, dir: &str) -> io::Result<()> {
        for name in names(dir)? {
            if self.found.len() >= self.limit {
                break;
            }
            let path = format!("{dir}{}", name.text);
            // Only fails for files beside a root without a trailing slash.
            let Some(key) = path.strip_prefix(self.root) else { continue };
            if name.is_dir {
                if self.may_hold(key) {
                    self.visit(&path)?;
                }
            } else if key.starts_with(self.prefix) && key > self.after {
                self.add(&path, key)?;
            }
        }
        Ok(())
    }

    /// Whether keys that begin with `dir` can be in the result.
    fn may_hold(&self, dir: &str) -> bool {
        let wanted = dir.starts_with(self.prefix) || self.prefix.starts_with(dir);
        wanted && (dir > self.after || self.after.starts_with(dir))
    }

    fn add(&mut self, path: &str, key: &str) -> io::Result<()> {
        let meta = match fs::metadata(path) {
            // Removed since the directory was read.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if meta.is_file() {
            let (size, modified) = (meta.len(), meta.modified()?);
            self.found.push(Object::new(key, size, modified));
        }
        Ok(())
    }
}

/// Returns the names in a directory, in the order of the keys below them. A missing directory has
/// none.
fn names(dir: &str) -> io::Result<Vec<Name>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(text) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if is_temporary(entry.file_name().as_os_str()) {
            continue;
        }
        let is_dir = entry.file_type()?.is_dir();
        let text = if is_dir { text + "/" } else { text };
        names.push(Name { text, is_dir });
    }
    names.sort_unstable_by(|a, b| a.text.cmp(&b.text));
    Ok(names)
}

fn is_temporary(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(".jfs.") && name.contains(".tmp."))
}
