//! Addresses: `tikv://pd1:2379,pd2:2379/prefix?ca=…&cert=…&key=…&gc-interval=3h`, as JuiceFS writes
//! them.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::meta::engine::{Env, masked};

/// Separates the prefix of the address from the keys of the volume.
const SEPARATOR: u8 = 0xFD;
const GC_INTERVAL: Duration = Duration::from_hours(3);
/// Readers of this client or another may still need old versions.
const MIN_GC_INTERVAL: Duration = Duration::from_hours(1);
const LOG_SHARDS: u16 = 64;
const MAX_LOG_SHARDS: u16 = 256;
const LOG_SHARDS_VARIABLE: &str = "JFS_TKV_CHANGELOG_SHARDS";

/// Options of the Go client's library for requesting timestamps. Existing addresses contain them,
/// so they are accepted and ignored.
const IGNORED: [&str; 2] = ["open-tso-follower-proxy", "max-tso-batch-wait-interval"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A parsed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The address as given. It contains no secret.
    pub place: String,
    pub pds: Vec<String>,
    /// What every key of the volume begins with.
    pub prefix: Vec<u8>,
    pub tls: Option<TlsFiles>,
    /// How long old versions are kept; `None` if this client never drops them.
    pub gc_interval: Option<Duration>,
    pub log_shards: u16,
    /// Whether the address contains `verify-cn`, which has no effect.
    pub verify_cn: bool,
}

impl Address {
    pub fn parse(url: &str, env: Env<'_>) -> Result<Self> {
        // Addresses have no password. If there is one all the same, errors must not show it.
        let place = masked(url);
        let fail = |what: String| Error::bad_input(format!("metadata address {place}: {what}"));
        let rest = url.strip_prefix("tikv://").unwrap_or(url);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.contains('@') {
            return Err(fail("TiKV has no user and no password; use ca, cert and key".to_owned()));
        }
        let pds: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if let Some(pd) = pds.iter().find(|pd| !is_endpoint(pd)) {
            return Err(fail(format!("{pd:?} is not the host:port of a PD server")));
        }
        let mut prefix = percent_decode(path.trim_start_matches('/'))
            .ok_or_else(|| fail("invalid percent-encoding in the prefix".to_owned()))?;
        prefix.push(SEPARATOR);

        let mut options = Options { gc_interval: Some(GC_INTERVAL), ..Options::default() };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            options.set(&name, &value).map_err(&fail)?;
        }
        Ok(Self {
            place: url.to_owned(),
            pds,
            prefix,
            tls: options.tls().map_err(&fail)?,
            gc_interval: options.gc_interval,
            log_shards: log_shards(env).map_err(&fail)?,
            verify_cn: options.verify_cn,
        })
    }
}

#[derive(Default)]
struct Options {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    gc_interval: Option<Duration>,
    verify_cn: bool,
}

impl Options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            _ if value.is_empty() || IGNORED.contains(&name) => {}
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "gc-interval" => {
                let interval = parse_duration(value).ok_or_else(|| {
                    format!("gc-interval: {value:?} is not a duration such as 3h")
                })?;
                let kept = interval.max(MIN_GC_INTERVAL);
                self.gc_interval = (!interval.is_zero()).then_some(kept);
            }
            // An option of servers: which callers they accept. Clients have no callers, and the Go
            // client ignores it too. Existing addresses contain it, so it is not an error, but
            // the user is warned that nothing is checked.
            "verify-cn" => self.verify_cn = true,
            other => return Err(format!("unknown option {other:?}")),
        }
        Ok(())
    }

    fn tls(&mut self) -> Result<Option<TlsFiles>, String> {
        match (self.ca.take(), self.cert.take(), self.key.take()) {
            (None, None, None) => Ok(None),
            (Some(ca), Some(cert), Some(key)) => Ok(Some(TlsFiles { ca, cert, key })),
            _ => Err("TLS needs all of ca, cert and key".to_owned()),
        }
    }
}

fn log_shards(env: Env<'_>) -> Result<u16, String> {
    let Some(value) = env(LOG_SHARDS_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(LOG_SHARDS);
    };
    let shards = value.parse().ok().filter(|shards| (1..=MAX_LOG_SHARDS).contains(shards));
    shards.ok_or_else(|| format!("{LOG_SHARDS_VARIABLE}={value:?} is not from 1 to 256"))
}

fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Parses `3h`, `1h30m`, or `0`.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..unit].parse().ok()?;
        rest = &rest[unit..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        seconds += value
            * match &rest[..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                _ => return None,
            };
        rest = &rest[end..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Returns `None` if a `%` is not followed by two hexadecimal digits.
fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
            out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse(url, &|_| None).expect("a good address")
    }

    fn error_of(url: &str) -> String {
        Address::parse(url, &|_| None).expect_err("a bad address").to_string()
    }

    #[test]
    fn keys_begin_with_the_path_and_a_separator() {
        assert_eq!(parse("tikv://pd:2379/jfs").prefix, b"jfs\xFD");
        assert_eq!(parse("tikv://pd:2379//a/b/").prefix, b"a/b/\xFD");
        assert_eq!(parse("tikv://pd:2379/a%20b").prefix, b"a b\xFD");
        assert_eq!(parse("tikv://pd:2379").prefix, b"\xFD");
        assert_eq!(parse("tikv://pd:2379/").prefix, b"\xFD");
    }

    #[test]
    fn an_address_may_name_several_servers() {
        assert_eq!(parse("tikv://a:1,[::1]:2,c:3/x").pds, ["a:1", "[::1]:2", "c:3"]);
    }

    #[test]
    fn old_versions_are_kept_for_three_hours_unless_the_address_says_otherwise() {
        let interval = |query: &str| parse(&format!("tikv://pd:1/x{query}")).gc_interval;
        assert_eq!(interval(""), Some(Duration::from_hours(3)));
        assert_eq!(interval("?gc-interval=1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(interval("?gc-interval=5m"), Some(Duration::from_hours(1)));
        assert_eq!(interval("?gc-interval=0"), None);
        assert_eq!(interval("?gc-interval=0s"), None);
    }

    #[test]
    fn tls_needs_three_files() {
        let files = parse("tikv://pd:1/x?ca=/a&cert=/b&key=/c").tls.expect("files");
        assert_eq!((files.ca, files.cert, files.key), ("/a".into(), "/b".into(), "/c".into()));
        assert_eq!(parse("tikv://pd:1/x?ca=&cert=&key=").tls, None);
        assert!(error_of("tikv://pd:1/x?ca=/a").contains("all of ca, cert and key"));
    }

    #[test]
    fn verify_cn_is_accepted_and_reported() {
        assert!(parse("tikv://pd:1/x?verify-cn=tikv,pd").verify_cn);
        assert!(!parse("tikv://pd:1/x?verify-cn=").verify_cn);
    }

    #[test]
    fn errors_name_the_invalid_part() {
        assert!(error_of("tikv://pd/x").contains("\"pd\""));
        assert!(error_of("tikv://pd:1,,b:2/x").contains("\"\""));
        assert!(error_of("tikv://pd:1/x?gc-interval=soon").contains("soon"));
        assert!(error_of("tikv://pd:1/x?what=ever").contains("\"what\""));
        assert!(error_of("tikv://me:secret@pd:1/x").contains("no password"));
        assert!(error_of("tikv://pd:1/%zz").contains("percent"));
    }

    #[test]
    fn the_environment_sets_the_number_of_log_shards() {
        let with = |value: &'static str| {
            Address::parse("tikv://pd:1/x", &move |name| {
                (name == LOG_SHARDS_VARIABLE).then(|| value.to_owned())
            })
        };
        assert_eq!(with("8").expect("a number").log_shards, 8);
        assert_eq!(with("").expect("the default").log_shards, 64);
        assert!(with("300").expect_err("too many").to_string().contains("300"));
    }
}
