//! Scripts: what the server must do in one step.

use std::fmt::Write;
use std::sync::LazyLock;

use redis::Cmd;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// A server-side script, called by the hash of its text.
pub(super) struct Script {
    body: &'static str,
    sha: LazyLock<String>,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: Script = Script {
            body: include_str!(concat!("lua/", $file, ".lua")),
            sha: LazyLock::new(|| sha1(include_str!(concat!("lua/", $file, ".lua")))),
        };)*

        /// Every script, to be loaded on each new connection.
        pub(super) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    COMMIT = "commit";
    LOOKUP = "lookup";
    CLAIM = "claim";
    FORMAT = "format";
    ADD_STATS = "add_stats";
    PUT_QUOTA = "put_quota";
    USE_QUOTA = "use_quota";
    DROP_FIELDS = "drop_fields";
    ADD_ACL = "add_acl";
    READ_LOG = "read_log";
    TRIM_LOG = "trim_log";
}

impl Script {
    /// A call with its keys; arguments are to be added.
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

/// The server names scripts by this hash; nothing is secured by it.
fn sha1(text: &str) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::with_capacity(40), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
