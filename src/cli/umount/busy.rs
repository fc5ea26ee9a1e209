//! Who uses a mount: found in the process table, without touching the mount.

use std::fs;
use std::path::{Path, PathBuf};

/// At most `limit` users, each with what it uses.
pub fn users(point: &Path, limit: usize) -> Vec<String> {
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

/// The first use of the mount by a process.
fn use_of(process: &Path, point: &Path) -> Option<String> {
    // The text of a link is the kernel's own: nothing is looked up on the mount.
    let below = |link: PathBuf| fs::read_link(link).ok().filter(|to| to.starts_with(point));
    let found = below(process.join("cwd"))
        .map(|dir| format!("works in {}", dir.display()))
        .or_else(|| below(process.join("root")).map(|dir| format!("lives in {}", dir.display())))
        .or_else(|| {
            let mut open = fs::read_dir(process.join("fd")).ok()?.flatten();
            open.find_map(|file| below(file.path()))
                .map(|file| format!("has {} open", file.display()))
        })
        .or_else(|| mapped(process, point).map(|file| format!("has {file} in memory")))?;
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
    fn whoever_has_a_file_open_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(users(dir.path(), 10).is_empty());
        let file = File::create(dir.path().join("file")).unwrap();
        let found = users(dir.path(), 10);
        let us = format!("process {} ", std::process::id());
        assert!(found.len() == 1 && found[0].starts_with(&us), "{found:?}");
        assert!(found[0].contains("/file open"), "{found:?}");
        drop(file);
        assert!(users(dir.path(), 10).is_empty());
    }
}
