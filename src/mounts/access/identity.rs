//! What tells one file system from another, and one right to use it from another.

use std::fmt::Write;
use std::sync::OnceLock;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

const REDIS_PORT: &str = "6379";

/// A digest of where the metadata is and of the volume's name. Who logs in with what, and how the
/// connection is made, does not matter.
pub fn of(address: &str, name: &str) -> String {
    let text = format!("{}\n{name}", place(address));
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// A digest of credentials, under a key that only this process has: it tells equal ones from others and
/// nothing else. Fields are told apart by their lengths.
pub fn of_credentials<'a>(fields: impl IntoIterator<Item = &'a str>) -> Result<String> {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    let key = if let Some(key) = KEY.get() {
        key
    } else {
        let mut fresh = [0; 32];
        let filled = SystemRandom::new().fill(&mut fresh);
        filled.map_err(|_| Error::Refused("there are no random numbers here".to_owned()))?;
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

/// Scheme, hosts and the part of the store, in one spelling.
fn place(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("redis", address));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if scheme == "sqlite3" || scheme == "memkv" {
        return format!("{scheme}://{rest}");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts).to_lowercase();
    let path = path.trim_matches('/');
    match scheme {
        "unix" => format!("unix:///{path}/{}", said_db(query).unwrap_or_default()),
        "redis" | "rediss" => {
            let db = said_db(query).unwrap_or_else(|| path.to_owned());
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

/// A single host without a port has the usual one.
fn with_port(hosts: &str) -> String {
    let host = if hosts.is_empty() { "localhost" } else { hosts };
    let has_port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => host.contains(':'),
    };
    if host.contains(',') || has_port { host.to_owned() } else { format!("{host}:{REDIS_PORT}") }
}

fn said_db(query: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "db").map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_system_has_one_identity_however_it_is_spelled() {
        let want = of("redis://host:6379/0", "vol");
        for other in [
            "redis://host",
            "host/0",
            "redis://:sesame@HOST:6379",
            "rediss://user:other@host/?read-timeout=5s",
            "redis://host/?db=0",
        ] {
            assert_eq!(of(other, "vol"), want, "{other}");
        }
        assert_eq!(of("tikv://a:1,b:2/p", "v"), of("tikv://b:2,a:1/p?ca=/x", "v"));
    }

    #[test]
    fn different_file_systems_have_different_identities() {
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
        let mut ids: Vec<String> = places.iter().map(|(place, name)| of(place, name)).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), places.len());
    }

    #[test]
    fn credentials_are_equal_field_by_field_and_never_shown() {
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
