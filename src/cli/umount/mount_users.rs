//! Which processes use a mount: found in `/proc`, without accessing the mount.

use std::fs;
use std::path::{Path, PathBuf};

/// Describes at most `limit` processes that use the mount, each with one file or directory it uses.
pub fn mount_users(point: &Path, limit: usize) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .map(|process| process.path())
        .filter(|process| pid(process).is_some())
        .filter_map(|process| use_of(&process, point))
        .take(limit)
        .collect()
}

fn pid(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}

/// Describes the first use of the mount by a process that is found.
fn use_of(process: &Path, point: &Path) -> Option<String> {
    // Reading the link does not look anything up on the mount, which may hang.
    let below = |link: PathBuf| fs::read_link(link).ok().filter(|to| to.starts_with(point));
    let found = below(process.join("cwd"))
        .map(|dir| format!("works in {}", dir.display()))
        .or_else(|| {
            below(process.join("root")).map(|dir| format!("has {} as its root", dir.display()))
        })
        .or_else(|| {
            let mut open = fs::read_dir(process.join("fd")).ok()?.flatten();
            open.find_map(|file| below(file.path()))
                .map(|file| format!("has {} open", file.display()))
        })
        .or_else(|| mapped(process, point).map(|file| format!("has {file} mapped")))?;
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    Some(format!("process {} ({}), which {found}", pid(process)?, name.trim()))
}

fn mapped(process: &Path, point: &Path) -> Option<String> {
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths.map(str::to_owned).find(|path| Path::new(path).starts_with(point))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(mount_users(dir.path(), 10).is_empty());
        let file = File::create(dir.path().join("file")).unwrap();
        let found = mount_users(dir.path(), 10);
        let us = format!("process {} ", std::process::id());
        assert!(found.len() == 1 && found[0].starts_with(&us), "{found:?}");
        assert!(found[0].contains("/file open"), "{found:?}");
        drop(file);
        assert!(mount_users(dir.path(), 10).is_empty());
    }
}
