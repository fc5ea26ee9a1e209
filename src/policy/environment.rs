//! Environment variables: those in a Secret, and those of the process.

use std::path::Path;

use super::flags::INSTANCE_CREDENTIALS;
use super::{Policy, forbidden_without};
use crate::error::Result;

/// Variables that name files, for this or other clients.
const FILE_VARIABLES: &[&str] = &[
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

/// Variables of the process that every file system may use: they describe the network and identify
/// nobody.
const PROCESS_VARIABLES: &[&str] = &[
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
    /// Checks whether a Secret may set a variable.
    pub fn check_variable(&self, name: &str, value: &str) -> Result<()> {
        if FILE_VARIABLES.contains(&name) && !value.is_empty() {
            return self.check_file(&format!("envs: {name}"), Path::new(value));
        }
        Ok(())
    }

    /// Checks whether the identity of this process or machine may be used in place of missing keys.
    /// `what` names the setting that requests it.
    pub fn check_instance_credentials(&self, what: &str) -> Result<()> {
        if self.allows_instance_credentials() {
            return Ok(());
        }
        Err(forbidden_without(
            format!("{what} requests the identity of the driver"),
            INSTANCE_CREDENTIALS,
        ))
    }

    /// Whether missing keys may be taken from the process or the machine.
    pub fn allows_instance_credentials(&self) -> bool {
        self.flags().is_none_or(|flags| flags.allow_instance_credentials)
    }

    /// Returns a variable of the process, if file systems may use it.
    pub fn process_variable(&self, name: &str) -> Option<String> {
        let may = self.allows_instance_credentials() || PROCESS_VARIABLES.contains(&name);
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
        for name in FILE_VARIABLES {
            let refusal = policy.check_variable(name, "/canary").unwrap_err().to_string();
            assert!(refusal.contains(name) && !refusal.contains("canary"), "{refusal}");
        }
        policy.check_variable("AWS_REGION", "/canary").unwrap();
    }

    #[test]
    fn the_identity_of_the_process_is_not_used_without_a_flag() {
        let (path, open) = ("PATH", Policy::unrestricted());
        assert!(open.process_variable(path).is_some() && open.allows_instance_credentials());
        let closed = Policy::new(Flags::default()).unwrap();
        assert!(closed.process_variable(path).is_none() && !closed.allows_instance_credentials());
        let flags = Flags { allow_instance_credentials: true, ..Flags::default() };
        assert!(Policy::new(flags).unwrap().process_variable(path).is_some());
    }
}
