//! Where metadata and objects may lie.

use std::path::{Path, PathBuf};

use super::flags::{LOCAL_STORAGE, is_plain};
use super::{Policy, never, refused};
use crate::error::{Error, Result};

/// Metadata that is reached over the network.
const NETWORK: &[&str] = &["redis", "rediss", "tikv"];
/// Metadata behind a path of the host.
const LOCAL: &[&str] = &["sqlite3", "unix"];

/// Parameters of addresses of metadata that name files, with dashes.
const METADATA_FILES: &[&str] =
    &["ca", "cert", "key", "tls-ca-cert-file", "tls-cert-file", "tls-key-file"];
/// Parameters of addresses of buckets that name files.
const BUCKET_FILES: &[&str] = &["ca-certs", "ssl-cert", "ssl-key"];

/// Longer than the name of any scheme.
const LONGEST_SCHEME: usize = 12;

/// Why nothing allows memory.
const UNCOUNTED: &str = "not in a driver, where nobody counts the memory that it takes";

impl Policy {
    /// Whether metadata may be there, as far as the address tells it. What is behind it is asked for
    /// when it is opened.
    pub fn check_metadata(&self, url: &str) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        match scheme {
            network if NETWORK.contains(&network) => {}
            local if LOCAL.contains(&local) => {
                if flags.allow_local_storage.is_none() {
                    let what = format!("metaurl: {local}:// is a file of the node");
                    return Err(refused(what, LOCAL_STORAGE));
                }
            }
            "memkv" => return Err(never("metaurl: memkv://", UNCOUNTED)),
            // What does not look like a scheme may be a password.
            other if other.len() <= LONGEST_SCHEME && other.bytes().all(is_of_scheme) => {
                return Err(Error::bad_input(format!("metaurl: unknown scheme {other:?}")));
            }
            _ => return Err(Error::bad_input("metaurl: unknown scheme")),
        }
        self.check_parameters("metaurl", rest, METADATA_FILES)
    }

    /// Whether objects may be there, as far as kind and address tell it.
    pub fn check_storage(&self, kind: &str, bucket: &str) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        match kind.to_lowercase().as_str() {
            "file" if flags.allow_local_storage.is_none() => {
                Err(refused("storage: file is a directory of the node", LOCAL_STORAGE))
            }
            "file" => Ok(()),
            "mem" => Err(never("storage: mem", UNCOUNTED)),
            _ => self.check_parameters("bucket", bucket, BUCKET_FILES),
        }
    }

    /// Whether metadata or objects may lie at this path of the host.
    pub fn check_local(&self, what: &str, path: &Path) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        let Some(dir) = &flags.allow_local_storage else {
            return Err(refused(format!("{what} lies on the node"), LOCAL_STORAGE));
        };
        let outside = || {
            Error::Forbidden(format!(
                "{what} is not below {}, where {LOCAL_STORAGE} of the driver allows it",
                dir.display()
            ))
        };
        if !is_plain(path) || !path.starts_with(dir) {
            return Err(outside());
        }
        // What is there already may lead elsewhere; what is not is made within it.
        let real = |path: &Path| path.ancestors().find_map(|part| part.canonicalize().ok());
        let (real_dir, real_path) = (real(dir), real(path));
        match (real_dir, real_path) {
            (Some(dir), Some(path)) if path.starts_with(&dir) => Ok(()),
            _ => Err(outside()),
        }
    }

    /// Whether data may be kept in the memory of the process.
    pub fn check_memory(&self, what: &str) -> Result<()> {
        match self.flags() {
            Some(_) => Err(never(what, UNCOUNTED)),
            None => Ok(()),
        }
    }

    /// Files among the parameters behind the question mark of an address.
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

    fn told(done: Result<()>) -> String {
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
            assert!(told(policy.check_metadata(url)).contains(LOCAL_STORAGE), "{url}");
        }
        assert!(told(policy.check_metadata("memkv://x")).contains("memkv"));
        assert!(told(policy.check_storage("FILE", "/etc")).contains(LOCAL_STORAGE));
        assert!(told(policy.check_storage("mem", "x")).contains("storage: mem"));
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
            let refusal = told(policy.check_metadata(url));
            assert!(refusal.contains(name) && !refusal.contains("canary"), "{refusal}");
        }
        for name in BUCKET_FILES {
            let refusal = told(policy.check_storage("s3", &format!("http://h/b?{name}=/canary")));
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
        for good in ["a", "a/b/c/", "new/x.db"] {
            policy.check_local("bucket", &dir.join(good)).unwrap();
        }
        for bad in ["../beside", "away", "away/x", "/etc", "a/../../b"] {
            assert!(told(policy.check_local("bucket", &dir.join(bad))).contains("bucket"), "{bad}");
        }
        assert!(policy.check_local("bucket", Path::new("relative")).is_err());
        assert!(Policy::unrestricted().check_local("bucket", Path::new("/etc")).is_ok());
    }
}
