//! The parameters after the `?` of an address: those of JuiceFS, and those of the Go client's Redis
//! library.

use std::collections::BTreeMap;
use std::time::Duration;

use super::address::Tls;
use crate::tls::TlsFiles;

/// Accepted, since existing addresses contain them, and reported: users expect something of them that
/// this client does not do. It asks the server in charge, and has caches of its own.
const UNSUPPORTED: &[&str] = &[
    "client-cache",
    "client-cache-expire",
    "client-cache-preload",
    "client-cache-size",
    "route-read",
];

/// Accepted, since existing addresses contain them, and ignored: they configure a pool of
/// connections, and this client has one connection.
const IGNORED: &[&str] = &[
    "client-name",
    "conn-max-idle-time",
    "conn-max-lifetime",
    "conn-max-lifetime-jitter",
    "idle-timeout",
    "max-active-conns",
    "max-concurrent-dials",
    "max-conn-age",
    "max-idle-conns",
    "max-retries",
    "min-idle-conns",
    "pool-fifo",
    "pool-size",
    "pool-timeout",
    "protocol",
];

/// Parameters that have not been used yet. Names are stored with dashes, also if they were written
/// with underscores.
pub(super) struct UrlParameters {
    unused: BTreeMap<String, String>,
}

pub(super) struct Options {
    pub db: Option<u32>,
    pub tls: Tls,
    pub dial_timeout: Duration,
    pub reply_timeout: Option<Duration>,
    pub min_backoff: Duration,
    pub max_backoff: Duration,
    /// Parameters that are given and have no effect here.
    pub unsupported: Vec<&'static str>,
}

impl UrlParameters {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut unused = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| {
                percent_decode(&text.replace('+', " "))
                    .ok_or_else(|| format!("bad percent-encoding in parameter {name:?}"))
            };
            unused.insert(decode(name)?.replace('_', "-"), decode(value)?);
        }
        Ok(Self { unused })
    }

    pub fn options(&mut self) -> Result<Options, String> {
        for name in IGNORED {
            self.unused.remove(*name);
        }
        let unsupported = UNSUPPORTED.iter().copied().filter(|name| self.flag(name)).collect();
        let db = match self.text("db") {
            Some(db) => {
                Some(db.parse().map_err(|_| format!("db: {db:?} is not a database number"))?)
            }
            None => None,
        };
        let skip_verify = self.flag("insecure-skip-verify") | self.flag("skip-verify");
        let reply_timeout = self.duration("read-timeout", Duration::from_secs(30))?;
        // A reply cannot come before its request is written, so one limit is enough.
        self.duration("write-timeout", Duration::from_secs(5))?;
        Ok(Options {
            db,
            tls: Tls {
                files: TlsFiles {
                    ca: self.text("tls-ca-cert-file").map(Into::into),
                    cert: self.text("tls-cert-file").map(Into::into),
                    key: self.text("tls-key-file").map(Into::into),
                    skip_verify,
                },
                server_name: self.text("tls-server-name"),
            },
            dial_timeout: self.positive("dial-timeout", Duration::from_secs(5))?,
            reply_timeout,
            min_backoff: self.positive("min-retry-backoff", Duration::from_millis(20))?,
            max_backoff: self.positive("max-retry-backoff", Duration::from_secs(10))?,
            unsupported,
        })
    }

    /// Returns a parameter that no option has used.
    pub fn unknown(&self) -> Option<&str> {
        self.unused.keys().next().map(String::as_str)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.unused.remove(name).filter(|value| !value.is_empty())
    }

    fn flag(&mut self, name: &str) -> bool {
        self.text(name).is_some_and(|value| value != "false" && value != "0")
    }

    fn positive(&mut self, name: &str, default: Duration) -> Result<Duration, String> {
        Ok(self.duration(name, default)?.unwrap_or(default))
    }

    /// Returns none if the limit is turned off, by zero or a negative value.
    fn duration(&mut self, name: &str, default: Duration) -> Result<Option<Duration>, String> {
        let Some(value) = self.text(name) else { return Ok(Some(default)) };
        match parse_duration(&value) {
            Some(time) => Ok(Some(time).filter(|time| !time.is_zero())),
            None => Err(format!("{name}: {value:?} is not a duration such as 30s or 500ms")),
        }
    }
}

/// Parses `1m30s`, `500ms`, or plain seconds. A negative value counts as zero.
fn parse_duration(text: &str) -> Option<Duration> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let value: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += value
            * match &rest[..end] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" if seconds == 0.0 => 1.0,
                _ => return None,
            };
        rest = &rest[end..];
    }
    if text.is_empty() {
        return None;
    }
    if negative { Some(Duration::ZERO) } else { Duration::try_from_secs_f64(seconds).ok() }
}

/// Returns none if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
            let value = digit()? * 16 + digit()?;
            out.push(u8::try_from(value).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
