//! Default paths, for root and for other users.

use std::path::PathBuf;

use nix::unistd::geteuid;

/// Returns the user's home directory, or the temporary directory if there is none.
pub fn home() -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    home.map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Returns `root` for root, and the path `below_home` in the home directory of any other user.
pub fn user_path(root: &str, below_home: &str) -> PathBuf {
    if geteuid().is_root() { PathBuf::from(root) } else { home().join(below_home) }
}

/// Returns the directory for the data of a volume without a bucket.
pub fn default_bucket() -> String {
    if geteuid().is_root() {
        return "/var/jfs".to_owned();
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    home.join(".juicefs/local").display().to_string()
}
