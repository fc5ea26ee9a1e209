//! Patterns in `--cache-dir`: `*`, `?`, `[a-z]`, `[^a-z]` and `\` within one path component, as in
//! Go's `filepath.Match`. The `glob` crates differ: they negate with `!` or have no escape
//! character, and they only return existing paths.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the directories that a pattern matches, or the path itself if it has no special
/// characters. Components after the last special one need not exist.
pub fn expand(pattern: &str) -> Vec<PathBuf> {
    let pattern = pattern.trim_end_matches('/');
    if pattern.is_empty() {
        return vec![PathBuf::from("/")];
    }
    if !is_special(pattern) {
        return vec![PathBuf::from(pattern)];
    }
    let (parent, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
    let parents = expand(parent);
    if !is_special(name) {
        return parents.into_iter().map(|parent| parent.join(name)).collect();
    }
    let mut found: Vec<PathBuf> =
        parents.iter().flat_map(|parent| matching(parent, name.as_bytes())).collect();
    found.sort();
    found
}

fn is_special(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

fn matching(parent: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let names = entries.flatten();
    let names = names.filter(|entry| matches(pattern, entry.file_name().as_encoded_bytes()));
    // Only then, since another one may be a mount that does not respond.
    let names = names.filter(|entry| entry.path().is_dir());
    names.map(|entry| entry.path()).collect()
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return name.is_empty() };
    if first == b'*' {
        return (0..=name.len()).any(|skipped| matches(rest, &name[skipped..]));
    }
    let Some((&byte, others)) = name.split_first() else { return false };
    match first {
        b'?' => matches(rest, others),
        b'[' => match class(rest, byte) {
            Some((true, rest)) => matches(rest, others),
            _ => false,
        },
        b'\\' => rest.first() == Some(&byte) && matches(&rest[1..], others),
        _ => first == byte && matches(rest, others),
    }
}

/// Matches a byte against the character class at the start of `pattern`. Returns whether it
/// matches, and the pattern after the class.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = match pattern.split_first()? {
        (b'^', rest) => (true, rest),
        _ => (false, pattern),
    };
    let (mut inside, mut empty) = (false, true);
    loop {
        if rest.first()? == &b']' && !empty {
            return Some((inside != negated, &rest[1..]));
        }
        empty = false;
        let (low, after) = member(rest)?;
        let (high, after) = match after.split_first() {
            Some((b'-', after)) => member(after)?,
            _ => (low, after),
        };
        inside |= (low..=high).contains(&byte);
        rest = after;
    }
}

fn member(pattern: &[u8]) -> Option<(u8, &[u8])> {
    match pattern {
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_patterns_as_in_go() {
        for (pattern, name, expected) in [
            ("disk*", "disk1", true),
            ("disk*", "disk", true),
            ("*k*1", "disk1", true),
            ("disk?", "disk", false),
            ("disk[0-2]", "disk1", true),
            ("disk[0-2]", "disk3", false),
            ("disk[^0-2]", "disk3", true),
            ("disk[13]", "disk3", true),
            ("disk[13", "disk3", false),
            (r"disk\*", "disk*", true),
            (r"disk\*", "disk1", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_match_existing_directories_and_keep_the_rest_of_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        for name in ["d2", "d1", "x"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("d3"), "a file").unwrap();
        let expected: Vec<PathBuf> =
            ["d1", "d2"].map(|name| folder.path().join(name).join("cache")).into();
        assert_eq!(expand(&format!("{root}/d*/cache/")), expected);
        assert_eq!(expand(&format!("{root}/nothing*")), Vec::<PathBuf>::new());
        assert_eq!(expand("/a/b"), [PathBuf::from("/a/b")]);
        assert_eq!(expand("/"), [PathBuf::from("/")]);
    }
}
