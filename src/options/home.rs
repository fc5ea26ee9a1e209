//! Where things lie that nobody chose a place for.

use std::path::PathBuf;

use nix::unistd::geteuid;

/// The user's own directory; the temporary one for who has none.
pub fn home() -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    home.map_or_else(std::env::temp_dir, PathBuf::from)
}

/// One place for root, and one in the home of anybody else.
pub fn or_home(root: &str, below_home: &str) -> PathBuf {
    if geteuid().is_root() { PathBuf::from(root) } else { home().join(below_home) }
}
