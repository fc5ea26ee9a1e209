//! Metadata addresses: `redis://`, `rediss://` and `unix://`, as JuiceFS writes them.

use std::path::PathBuf;
use std::time::Duration;

use super::url_parameters::{self, UrlParameters};
use crate::error::{Error, Result};
use crate::meta::engine::address::{Env, masked};
use crate::tls::TlsFiles;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Where one server listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// How to find the server in charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Topology {
    /// One server, which may turn out to be a node of a cluster.
    Single(Endpoint),
    /// The sentinels know the master by its name.
    Sentinel { master: String, sentinels: Vec<Endpoint> },
    /// The nodes know which of them owns the volume's slot.
    Cluster(Vec<Endpoint>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tls {
    pub files: TlsFiles,
    /// The name that the certificate must have, instead of the host's.
    pub server_name: Option<String>,
}

/// A user name and a password. Without `Debug`, so that it cannot be logged.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub user: Option<String>,
    pub password: Option<String>,
}

/// A parsed metadata address.
#[derive(Clone)]
pub(in super::super) struct Address {
    /// The address with its password masked.
    pub place: String,
    pub(super) topology: Topology,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub db: u32,
    pub(super) tls: Option<Tls>,
    /// Limit for connecting, including the handshake.
    pub dial_timeout: Duration,
    /// Limit for a reply; none means no limit.
    pub reply_timeout: Option<Duration>,
    pub min_backoff: Duration,
    pub max_backoff: Duration,
    /// Parameters that are given and have no effect here.
    pub unsupported: Vec<&'static str>,
}

impl Address {
    /// Parses an address. A password that it does not contain comes from the environment `env`.
    pub fn parse(url: &str, env: Env<'_>) -> Result<Self> {
        let place = masked(url);
        let fail = |what: String| Error::bad_input(format!("metadata address {place}: {what}"));
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parameters = UrlParameters::parse(parameters).map_err(&fail)?;

        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let login = login(user_info, env).map_err(&fail)?;

        let (topology, path_db) = match scheme {
            "unix" => (Topology::Single(socket(path).map_err(&fail)?), 0),
            "redis" | "rediss" => (topology(hosts).map_err(&fail)?, database(path).map_err(&fail)?),
            other => return Err(fail(format!("unknown scheme {other:?}"))),
        };
        let options = parameters.options().map_err(&fail)?;
        if let Some(name) = parameters.unknown() {
            return Err(fail(format!("unknown parameter {name:?}")));
        }
        Ok(Self {
            topology,
            login,
            sentinel_login: Login { user: None, password: filled(env("SENTINEL_PASSWORD")) },
            db: options.db.unwrap_or(path_db),
            tls: (scheme == "rediss").then_some(options.tls),
            dial_timeout: options.dial_timeout,
            reply_timeout: options.reply_timeout,
            min_backoff: options.min_backoff,
            max_backoff: options.max_backoff,
            unsupported: options.unsupported,
            place,
        })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn login(user_info: &str, env: Env<'_>) -> Result<Login, String> {
    let (user, password) = match user_info.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (user_info, None),
    };
    let decode = |text: &str| {
        url_parameters::percent_decode(text)
            .ok_or_else(|| "bad percent-encoding before '@'".to_owned())
    };
    let password = match filled(password.map(decode).transpose()?)
        .or_else(|| filled(env("REDIS_PASSWORD")))
        .or_else(|| filled(env("META_PASSWORD")))
    {
        Some(password) => Some(password),
        None => match filled(env("META_PASSWORD_FILE")) {
            Some(file) => Some(
                std::fs::read_to_string(&file)
                    .map_err(|error| format!("META_PASSWORD_FILE {file}: {error}"))?
                    .trim()
                    .to_owned(),
            ),
            None => None,
        },
    };
    Ok(Login { user: filled(Some(decode(user)?)), password })
}

fn socket(path: &str) -> Result<Endpoint, String> {
    let path = url_parameters::percent_decode(path).ok_or("bad percent-encoding in the path")?;
    if path.trim().is_empty() {
        return Err("no socket path".to_owned());
    }
    Ok(Endpoint::Unix(path.into()))
}

fn database(path: &str) -> Result<u32, String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next()) {
        (None, _) => Ok(0),
        (Some(db), None) => db.parse().map_err(|_| format!("{db:?} is not a database number")),
        (Some(_), Some(_)) => Err(format!("{path:?} is not a database number")),
    }
}

/// Parses the hosts. A comma before the first colon means the name of a master and its sentinels; any
/// other comma means a cluster.
fn topology(hosts: &str) -> Result<Topology, String> {
    let (comma, colon) = (hosts.find(','), hosts.find(':'));
    if comma.is_none() {
        return Ok(Topology::Single(endpoint(hosts, REDIS_PORT)?));
    }
    let mut items = hosts.split(',');
    if comma < colon {
        let master = items.next().unwrap_or_default().to_owned();
        let items: Vec<&str> = items.collect();
        let last = items.last().copied().unwrap_or_default();
        let port = match endpoint(last, SENTINEL_PORT)? {
            Endpoint::Tcp { port, .. } => port,
            Endpoint::Unix(_) => SENTINEL_PORT,
        };
        let sentinels = items.iter().map(|item| endpoint(item, port)).collect::<Result<_, _>>()?;
        return Ok(Topology::Sentinel { master, sentinels });
    }
    let nodes = items.map(|item| endpoint(item, REDIS_PORT)).collect::<Result<_, _>>()?;
    Ok(Topology::Cluster(nodes))
}

fn endpoint(text: &str, default_port: u16) -> Result<Endpoint, String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| format!("bad host {text:?}"))?;
        (host, rest.strip_prefix(':').unwrap_or_default())
    } else {
        text.split_once(':').unwrap_or((text, ""))
    };
    let port = match port {
        "" => default_port,
        port => port.parse().map_err(|_| format!("{port:?} is not a port"))?,
    };
    let host = if host.is_empty() { "localhost" } else { host };
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

/// Drops empty text: an empty variable counts as unset.
fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}
