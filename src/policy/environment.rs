//! Variables of the environment: those that a Secret brings, and those of the process.

use std::path::Path;

use super::flags::INSTANCE_CREDENTIALS;
use super::{Policy, refused};
use crate::error::Result;

/// Variables that name files, here or in other clients.
const FILES: &[&str] = &[
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KRB5CCNAME",
    "KRB5_CONFIG",
    "META_PASSWORD_FILE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// What the process may lend to every file system: how its network is, and nobody's identity.
const LENT: &[&str] = &[
    "ALICLOUD_REGION_ID",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JFS_S3_VHOST_STYLE",
    "MINIO_REGION",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

impl Policy {
    /// Whether a Secret may set this variable.
    pub fn check_variable(&self, name: &str, value: &str) -> Result<()> {
        if FILES.contains(&name) && !value.is_empty() {
            return self.check_file(&format!("envs: {name}"), Path::new(value));
        }
        Ok(())
    }

    /// Whether the identity of this process, or of the machine, may stand for keys that are missing;
    /// `what` asks for it.
    pub fn check_instance_credentials(&self, what: &str) -> Result<()> {
        if self.lends_identity() {
            return Ok(());
        }
        Err(refused(format!("{what} asks for the identity of the driver"), INSTANCE_CREDENTIALS))
    }

    /// Whether keys that are missing may be looked for in the process and on the machine.
    pub fn lends_identity(&self) -> bool {
        self.flags().is_none_or(|flags| flags.allow_instance_credentials)
    }

    /// A variable of the process, if a file system may use it.
    pub fn lent(&self, name: &str) -> Option<String> {
        let may = self.lends_identity() || LENT.contains(&name);
        may.then(|| std::env::var(name).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Flags;

    #[test]
    fn variables_that_name_files_are_refused_by_their_names_alone() {
        let policy = Policy::new(Flags::default()).unwrap();
        for name in FILES {
            let refusal = policy.check_variable(name, "/canary").unwrap_err().to_string();
            assert!(refusal.contains(name) && !refusal.contains("canary"), "{refusal}");
        }
        policy.check_variable("AWS_REGION", "/canary").unwrap();
    }

    #[test]
    fn the_process_lends_its_identity_to_nobody_unless_told_to() {
        let (path, open) = ("PATH", Policy::unrestricted());
        assert!(open.lent(path).is_some() && open.lends_identity());
        let closed = Policy::new(Flags::default()).unwrap();
        assert!(closed.lent(path).is_none() && !closed.lends_identity());
        let flags = Flags { allow_instance_credentials: true, ..Flags::default() };
        assert!(Policy::new(flags).unwrap().lent(path).is_some());
    }
}
