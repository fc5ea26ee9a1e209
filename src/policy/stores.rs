//! Where metadata and objects may be stored.

use std::path::{Path, PathBuf};

use super::flags::{LOCAL_STORAGE, is_plain};
use super::{Policy, always_forbidden, forbidden_without};
use crate::error::{Error, Result};

/// Schemes of metadata engines on the network.
const NETWORK_SCHEMES: &[&str] = &["redis", "rediss", "tikv"];
/// Schemes of metadata engines at a path of the host.
const LOCAL_SCHEMES: &[&str] = &["sqlite3", "unix"];

/// Parameters of metadata addresses that name files, spelled with dashes.
const METADATA_FILES: &[&str] =
    &["ca", "cert", "key", "tls-ca-cert-file", "tls-cert-file", "tls-key-file"];
/// Parameters of bucket addresses that name files.
const BUCKET_FILES: &[&str] = &["ca-certs", "ssl-cert", "ssl-key"];

/// No scheme has a longer name.
const MAX_SCHEME: usize = 12;

/// Why memory is never allowed.
const NOT_IN_BUDGET: &str = "not in a driver, whose memory budget does not include it";

impl Policy {
    /// Checks the address of metadata. What it leads to is checked when it is opened.
    pub fn check_metadata(&self, url: &str) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        match scheme {
            network if NETWORK_SCHEMES.contains(&network) => {}
            local if LOCAL_SCHEMES.contains(&local) => {
                if flags.allow_local_storage.is_none() {
                    let what = format!("metaurl: {local}:// is a file of the node");
                    return Err(forbidden_without(what, LOCAL_STORAGE));
                }
            }
            "memkv" => return Err(always_forbidden("metaurl: memkv://", NOT_IN_BUDGET)),
            // Anything else may be a password.
            other if other.len() <= MAX_SCHEME && other.bytes().all(is_of_scheme) => {
                return Err(Error::bad_input(format!("metaurl: unknown scheme {other:?}")));
            }
            _ => return Err(Error::bad_input("metaurl: unknown scheme")),
        }
        self.check_parameters("metaurl", rest, METADATA_FILES)
    }

    /// Checks the kind and the address of an object store.
    pub fn check_storage(&self, kind: &str, bucket: &str) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        match kind.to_lowercase().as_str() {
            "file" if flags.allow_local_storage.is_none() => {
                Err(forbidden_without("storage: file is a directory of the node", LOCAL_STORAGE))
            }
            "file" => Ok(()),
            "mem" => Err(always_forbidden("storage: mem", NOT_IN_BUDGET)),
            _ => self.check_parameters("bucket", bucket, BUCKET_FILES),
        }
    }

    /// Checks whether metadata or objects may be stored at a path of the host.
    pub fn check_local(&self, what: &str, path: &Path) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        let Some(dir) = &flags.allow_local_storage else {
            return Err(forbidden_without(format!("{what} is on the node"), LOCAL_STORAGE));
        };
        let outside = || {
            Error::Forbidden(format!(
                "{what} is not below {}, the directory of the driver's {LOCAL_STORAGE}",
                dir.display()
            ))
        };
        if !is_plain(path) || !path.starts_with(dir) {
            return Err(outside());
        }
        // Existing parts may be symbolic links; missing ones are created within the last existing
        // one.
        let real = |path: &Path| path.ancestors().find_map(|part| part.canonicalize().ok());
        let (real_dir, real_path) = (real(dir), real(path));
        match (real_dir, real_path) {
            (Some(dir), Some(path)) if path.starts_with(&dir) => Ok(()),
            _ => Err(outside()),
        }
    }

    /// Checks whether data may be stored in the memory of the process.
    pub fn check_memory(&self, what: &str) -> Result<()> {
        match self.flags() {
            Some(_) => Err(always_forbidden(what, NOT_IN_BUDGET)),
            None => Ok(()),
        }
    }

    /// Checks the files among the query parameters of an address.
    fn check_parameters(&self, what: &str, address: &str, files: &[&str]) -> Result<()> {
        let Some((_, query)) = address.split_once('?') else { return Ok(()) };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let name = name.replace('_', "-");
            if !value.is_empty() && files.contains(&name.as_str()) {
                self.check_file(&format!("{what}: {name}"), &PathBuf::from(value.as_ref()))?;
            }
        }
        Ok(())
    }
}

fn is_of_scheme(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Flags;

    fn message(done: Result<()>) -> String {
        done.unwrap_err().to_string()
    }

    #[test]
    fn by_default_metadata_and_objects_are_on_the_network() {
        let policy = Policy::new(Flags::default()).unwrap();
        for url in ["host/1", "redis://:p@h/1", "rediss://h?insecure-skip-verify=1", "tikv://h:1/p"]
        {
            policy.check_metadata(url).unwrap();
        }
        for kind in ["s3", "minio", "oss", "S3"] {
            policy.check_storage(kind, "https://h/b?region=x").unwrap();
        }
        for url in ["sqlite3:///etc/x.db", "unix:///run/redis.sock"] {
            assert!(message(policy.check_metadata(url)).contains(LOCAL_STORAGE), "{url}");
        }
        assert!(message(policy.check_metadata("memkv://x")).contains("memkv"));
        assert!(message(policy.check_storage("FILE", "/etc")).contains(LOCAL_STORAGE));
        assert!(message(policy.check_storage("mem", "x")).contains("storage: mem"));
    }

    #[test]
    fn a_file_in_an_address_is_refused_by_the_name_of_its_parameter() {
        let policy = Policy::new(Flags::default()).unwrap();
        for (url, name) in [
            ("rediss://h/1?tls-ca-cert-file=/canary", "tls-ca-cert-file"),
            ("rediss://h/1?tls_key_file=/canary", "tls-key-file"),
            ("rediss://h/1?tls%2Dcert%2Dfile=/canary", "tls-cert-file"),
            ("tikv://h:1/p?ca=/canary&cert=/b&key=/c", "ca"),
        ] {
            let refusal = message(policy.check_metadata(url));
            assert!(refusal.contains(name) && !refusal.contains("canary"), "{refusal}");
        }
        for name in BUCKET_FILES {
            let refusal =
                message(policy.check_storage("s3", &format!("http://h/b?{name}=/canary")));
            assert!(refusal.contains(name) && !refusal.contains("canary"), "{refusal}");
        }
    }

    #[test]
    fn local_storage_stays_below_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("local");
        std::fs::create_dir_all(dir.join("a")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.join("away")).unwrap();
        let flags = Flags { allow_local_storage: Some(dir.clone()), ..Flags::default() };
        let policy = Policy::new(flags).unwrap();
        for allowed in ["a", "a/b/c/", "new/x.db"] {
            policy.check_local("bucket", &dir.join(allowed)).unwrap();
        }
        for bad in ["../beside", "away", "away/x", "/etc", "a/../../b"] {
            assert!(
                message(policy.check_local("bucket", &dir.join(bad))).contains("bucket"),
                "{bad}"
            );
        }
        assert!(policy.check_local("bucket", Path::new("relative")).is_err());
        assert!(Policy::unrestricted().check_local("bucket", Path::new("/etc")).is_ok());
    }
}
