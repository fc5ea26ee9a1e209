//! Lua scripts, for what the server must do atomically.

use std::fmt::Write;
use std::sync::LazyLock;

use redis::Cmd;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// A script, called by the hash of its text.
pub(super) struct Script {
    body: &'static str,
    sha: LazyLock<String>,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: Script = Script {
            body: include_str!(concat!($file, ".lua")),
            sha: LazyLock::new(|| sha1(include_str!(concat!($file, ".lua")))),
        };)*

        /// All scripts, which are loaded on each new connection.
        pub(super) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    COMMIT = "commit";
    LOOKUP = "lookup";
    CLAIM = "claim";
    FORMAT = "format";
    ADD_DIR_STATS = "add_dir_stats";
    PUT_QUOTA = "put_quota";
    ADD_QUOTA_USAGE = "add_quota_usage";
    DROP_FIELDS = "drop_fields";
    ADD_ACL = "add_acl";
    READ_CHANGE_LOG = "read_change_log";
    TRIM_CHANGE_LOG = "trim_change_log";
}

impl Script {
    /// Returns a call with its keys. The caller adds the arguments.
    pub fn call<K: AsRef<[u8]>>(&self, keys: &[K]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.sha.as_str()).arg(keys.len());
        for key in keys {
            cmd.arg(key.as_ref());
        }
        cmd
    }

    pub fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(self.body);
        cmd
    }
}

/// The server identifies scripts by this hash; it has no security purpose.
fn sha1(text: &str) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::with_capacity(40), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
