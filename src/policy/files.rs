//! Files that a Secret, an option or an address names: certificates, keys, passwords.
//!
//! A driver opens them only below one directory that the administrator chose. The kernel enforces
//! that while it resolves the path, so nothing can be exchanged in between.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;

use super::flags::{FILES_BELOW, is_plain};
use super::{Policy, forbidden_without};
use crate::error::{Error, Result};

/// More than any certificate bundle has.
const MAX_SIZE: u64 = 1 << 20;

/// Restrictions on the path below the directory.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Where kubelet keeps the files of a mounted Secret. The visible names are symbolic links to
/// there.
const KUBELET_DATA_DIR: &str = "..data";

/// An open file, which stays the same whatever happens to its path.
#[derive(Debug)]
pub struct OpenedFile {
    file: File,
    path: PathBuf,
}

impl Policy {
    /// Refuses a file that may not be named, without checking whether it exists. `what` names the
    /// setting that refers to it.
    pub fn check_file(&self, what: &str, path: &Path) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        match &flags.allow_files_below {
            Some(dir) if is_plain(path) && path.starts_with(dir) && path != dir => Ok(()),
            Some(dir) => Err(Error::Forbidden(format!(
                "{what} names a file outside of {}, the directory of the driver's {FILES_BELOW}",
                dir.display()
            ))),
            None => Err(forbidden_without(format!("{what} names a file of the node"), FILES_BELOW)),
        }
    }

    /// Opens a file that a setting names.
    pub fn open_file(&self, what: &str, path: &Path) -> Result<OpenedFile> {
        self.check_file(what, path)?;
        let fail = |cause: String| Error::bad_input(format!("{what} {}: {cause}", path.display()));
        let dir = self.flags().and_then(|flags| flags.allow_files_below.as_deref());
        let Some(dir) = dir else {
            let file = File::open(path).map_err(|error| fail(error.to_string()))?;
            return Ok(OpenedFile { file, path: path.to_owned() });
        };
        let file = beneath(dir, path).map_err(|error| fail(error.to_string()))?;
        let stat = fstat(&file).map_err(|error| fail(error.to_string()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(fail("not a regular file".to_owned()));
        }
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(OpenedFile { file, path })
    }

    /// Reads a file that a setting names.
    pub fn read_file(&self, what: &str, path: &Path) -> Result<Vec<u8>> {
        let fail = |cause: String| Error::bad_input(format!("{what} {}: {cause}", path.display()));
        let mut content = Vec::new();
        let opened = self.open_file(what, path)?;
        let read = opened.file.take(MAX_SIZE + 1).read_to_end(&mut content);
        read.map_err(|error| fail(error.to_string()))?;
        if content.len() as u64 > MAX_SIZE {
            return Err(fail(format!("larger than {MAX_SIZE} bytes")));
        }
        Ok(content)
    }

    /// Reads a text file that a setting names.
    pub fn read_text(&self, what: &str, path: &Path) -> Result<String> {
        String::from_utf8(self.read_file(what, path)?)
            .map_err(|_| Error::bad_input(format!("{what} {}: not UTF-8", path.display())))
    }
}

impl OpenedFile {
    /// Returns a path to this very file, valid while it is open.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn beneath(dir: &Path, path: &Path) -> Result<File, Errno> {
    let below = path.strip_prefix(dir).map_err(|_| Errno::ACCESS)?;
    let base = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // A named pipe must not block the thread.
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat2(&base, below, how, Mode::empty(), BENEATH);
    if !matches!(opened, Err(Errno::LOOP)) {
        return opened.map(File::from);
    }
    let (parent, name) = (below.parent().unwrap_or(Path::new("")), below.file_name());
    let name = name.ok_or(Errno::LOOP)?;
    let dir_how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let files = openat2(&base, parent.join(KUBELET_DATA_DIR), dir_how, Mode::empty(), within);
    // Without it, kubelet did not make the link.
    let files = files.map_err(|_| Errno::LOOP)?;
    openat2(&files, name, how, Mode::empty(), BENEATH).map(File::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::policy::Flags;

    fn below(dir: &Path) -> std::sync::Arc<Policy> {
        let flags = Flags { allow_files_below: Some(dir.to_owned()), ..Flags::default() };
        Policy::new(flags).unwrap()
    }

    fn message(read: Result<Vec<u8>>) -> String {
        read.unwrap_err().to_string()
    }

    #[test]
    fn without_a_flag_no_file_is_opened() {
        let policy = Policy::new(Flags::default()).unwrap();
        let (there, not) = (Path::new("/etc/passwd"), Path::new("/etc/not/there"));
        let refusals = [there, not].map(|path| message(policy.read_file("ssl-key", path)));
        assert_eq!(refusals[0], refusals[1], "the error does not reveal whether a file exists");
        assert!(refusals[0].contains("ssl-key") && refusals[0].contains(FILES_BELOW));
        assert!(Policy::unrestricted().read_file("ssl-key", there).is_ok());
    }

    #[test]
    fn only_regular_files_below_the_directory_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("certificates");
        std::fs::create_dir_all(dir.join("more")).unwrap();
        std::fs::write(dir.join("more/ca.pem"), "a certificate").unwrap();
        std::fs::write(folder.path().join("shadow"), "canary").unwrap();
        symlink("../shadow", dir.join("up")).unwrap();
        symlink(folder.path().join("shadow"), dir.join("away")).unwrap();
        symlink("more", dir.join("link")).unwrap();
        symlink("/proc/self/fd/0", dir.join("magic")).unwrap();
        let fifo = dir.join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let policy = below(&dir);
        let read = |name: &str| policy.read_file("ca", &dir.join(name));
        assert_eq!(read("more/ca.pem").unwrap(), b"a certificate");
        for name in [
            "up",
            "away",
            "link/ca.pem",
            "magic",
            "fifo",
            "more",
            "more/../../shadow",
            "../shadow",
            "none",
            "",
        ] {
            let refusal = message(read(name));
            assert!(!refusal.contains("canary") && refusal.contains("ca"), "{name}: {refusal}");
        }
        assert!(
            message(policy.read_file("ca", &folder.path().join("shadow"))).contains(FILES_BELOW)
        );
        assert!(message(policy.read_file("ca", Path::new("more/ca.pem"))).contains(FILES_BELOW));
    }

    #[test]
    fn an_endless_file_is_not_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("large")).unwrap();
        file.set_len(1 << 40).unwrap();
        let read = below(folder.path()).read_file("ca", &folder.path().join("large"));
        assert!(message(read).contains("larger"));
    }

    #[test]
    fn files_of_a_mounted_secret_are_found_through_kubelets_links() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("tls");
        std::fs::create_dir_all(secret.join("..2026_1")).unwrap();
        std::fs::write(secret.join("..2026_1/ca.crt"), "by kubelet").unwrap();
        symlink("..2026_1", secret.join("..data")).unwrap();
        symlink("..data/ca.crt", secret.join("ca.crt")).unwrap();
        for dir in [folder.path(), &secret] {
            let read = below(dir).read_file("ca", &secret.join("ca.crt"));
            assert_eq!(read.unwrap(), b"by kubelet");
        }
    }

    #[test]
    fn an_open_file_stays_the_same_when_its_path_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "first").unwrap();
        let opened = below(folder.path()).open_file("key", &path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(std::fs::read(opened.path()).unwrap(), b"first");
    }
}
