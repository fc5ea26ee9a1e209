//! Digests that identify file systems and credentials.

use std::fmt::Write;
use std::sync::OnceLock;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

const REDIS_PORT: &str = "6379";

/// Returns a digest of the metadata's location and the file system's name. Credentials and
/// connection options do not matter.
pub fn of_file_system(address: &str, name: &str) -> String {
    let text = format!("{}\n{name}", normalized(address));
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Returns a digest of credentials, keyed with a secret of this process: it shows only whether two
/// are equal. Fields are prefixed with their lengths.
pub fn of_credentials<'a>(fields: impl IntoIterator<Item = &'a str>) -> Result<String> {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    let key = if let Some(key) = KEY.get() {
        key
    } else {
        let mut fresh = [0; 32];
        let filled = SystemRandom::new().fill(&mut fresh);
        filled.map_err(|_| Error::Refused("the system has no random numbers".to_owned()))?;
        KEY.get_or_init(|| fresh)
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for field in fields {
        context.update(&(field.len() as u64).to_le_bytes());
        context.update(field.as_bytes());
    }
    Ok(hex(context.sign().as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Normalizes an address: scheme, hosts and database or prefix.
fn normalized(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("redis", address));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if scheme == "sqlite3" || scheme == "memkv" {
        return format!("{scheme}://{rest}");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts).to_lowercase();
    let path = path.trim_matches('/');
    match scheme {
        "unix" => format!("unix:///{path}/{}", db_parameter(query).unwrap_or_default()),
        "redis" | "rediss" => {
            let db = db_parameter(query).unwrap_or_else(|| path.to_owned());
            let db = if db.is_empty() { "0".to_owned() } else { db };
            format!("redis://{}/{db}", with_port(&hosts))
        }
        _ => {
            let mut each: Vec<&str> = hosts.split(',').collect();
            each.sort_unstable();
            format!("{scheme}://{}/{path}", each.join(","))
        }
    }
}

/// Adds the default port to a single host without one.
fn with_port(hosts: &str) -> String {
    let host = if hosts.is_empty() { "localhost" } else { hosts };
    let has_port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => host.contains(':'),
    };
    if host.contains(',') || has_port { host.to_owned() } else { format!("{host}:{REDIS_PORT}") }
}

fn db_parameter(query: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "db").map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_system_has_one_id_however_it_is_spelled() {
        let want = of_file_system("redis://host:6379/0", "vol");
        for other in [
            "redis://host",
            "host/0",
            "redis://:sesame@HOST:6379",
            "rediss://user:other@host/?read-timeout=5s",
            "redis://host/?db=0",
        ] {
            assert_eq!(of_file_system(other, "vol"), want, "{other}");
        }
        assert_eq!(
            of_file_system("tikv://a:1,b:2/p", "v"),
            of_file_system("tikv://b:2,a:1/p?ca=/x", "v")
        );
    }

    #[test]
    fn different_file_systems_have_different_ids() {
        let places = [
            ("redis://host/1", "vol"),
            ("redis://host/2", "vol"),
            ("redis://host/1", "other"),
            ("redis://host:6380/1", "vol"),
            ("tikv://host/1", "vol"),
            ("sqlite3:///a.db", "vol"),
            ("unix:///a.sock", "vol"),
            ("unix:///a.sock?db=1", "vol"),
        ];
        let mut ids: Vec<String> =
            places.iter().map(|(normalized, name)| of_file_system(normalized, name)).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), places.len());
    }

    #[test]
    fn credentials_are_compared_field_by_field_and_never_shown() {
        let of = |fields: &[&str]| of_credentials(fields.iter().copied()).unwrap();
        assert_eq!(of(&["user", "sesame"]), of(&["user", "sesame"]));
        let others: [&[&str]; 4] =
            [&["user", "other"], &["use", "rsesame"], &["usersesame"], &["user", "sesame", ""]];
        for other in others {
            assert_ne!(of(&["user", "sesame"]), of(other), "{other:?}");
        }
        assert!(!of(&["user", "sesame"]).contains("sesame"));
    }
}
