//! Proxy selection by environment variables, as in the Go client.
//!
//! Does not connect.

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use url::Url;

use super::address::Lookup;
use super::percent_decoded;

/// Proxies by the scheme of a request, and the hosts that need none.
pub struct Proxies {
    http: Choice,
    https: Choice,
    exempt: Vec<Exemption>,
}

/// An invalid variable only matters to a request that needs it.
type Choice = Result<Option<Proxy>, String>;

/// An HTTP proxy. Displays its address, never its password.
#[derive(Clone)]
pub struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// One entry of `NO_PROXY`.
#[derive(Debug, PartialEq, Eq)]
enum Exemption {
    Everyone,
    Network(IpAddr, u8),
    Address(IpAddr, Option<u16>),
    /// `below` has a leading dot: matches subdomains, and with `itself` the domain as well.
    Domain {
        below: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    pub fn from_env(env: Lookup<'_>) -> Self {
        let first = |names: [&str; 2]| {
            names.iter().find_map(|name| env(name).map(|value| ((*name).to_owned(), value)))
        };
        let proxy = |names| match first(names) {
            Some((name, value)) => {
                Proxy::parse(&value).map(Some).map_err(|why| format!("{name}: {why}"))
            }
            None => Ok(None),
        };
        let exempt = first(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default();
        Self {
            http: proxy(["HTTP_PROXY", "http_proxy"]),
            https: proxy(["HTTPS_PROXY", "https_proxy"]),
            exempt: exempt.split(',').filter_map(Exemption::parse).collect(),
        }
    }

    /// Returns the proxy for a request, or `None` for a direct connection. The error names the
    /// variable.
    pub fn of(&self, uri: &Uri) -> Result<Option<&Proxy>, String> {
        let (choice, usual) = match uri.scheme_str() {
            Some("http") => (&self.http, 80),
            Some("https") => (&self.https, 443),
            _ => return Ok(None),
        };
        let host = uri.host().unwrap_or_default().to_lowercase();
        if self.is_exempt(&host, uri.port_u16().unwrap_or(usual)) {
            return Ok(None);
        }
        choice.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    fn is_exempt(&self, host: &str, port: u16) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        host == "localhost"
            || address.is_some_and(is_of_this_machine)
            || self.exempt.iter().any(|entry| entry.holds(bare, address, port))
    }
}

/// Loopback, as in the Go client. Also link-local addresses, where clouds serve the metadata and
/// credentials of a machine: a proxy would return its own.
fn is_of_this_machine(address: IpAddr) -> bool {
    let tells_machines = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    address.is_loopback() || tells_machines
}

impl Proxy {
    /// Parses `http://user:password@host:port`; scheme, user and port are optional.
    fn parse(value: &str) -> Result<Self, String> {
        let full = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        // The value is not shown: it may contain a password.
        let url = Url::parse(&full).map_err(|error| format!("not an address: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = url.scheme();
            return Err(format!(
                "proxies of kind {scheme} are not supported; there are http, https"
            ));
        }
        let host = url.host_str().ok_or("names no host")?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let uri = format!("{}://{host}{port}/", url.scheme());
        let uri = uri.parse().map_err(|error| format!("not an address: {error}"))?;
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some(basic(user, password.unwrap_or_default())?),
        };
        Ok(Self { uri, authorization })
    }

    /// Returns the address of the proxy.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the value of `Proxy-Authorization`, if the address has credentials.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}", self.uri.to_string().trim_end_matches('/'))
    }
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, String> {
    let plain = |part| percent_decoded(part).ok_or("bad percent-encoding before '@'");
    let pair = format!("{}:{}", plain(user)?, plain(password)?);
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
        .map_err(|_| "bad user or password")?;
    value.set_sensitive(true);
    Ok(value)
}

impl Exemption {
    /// Parses an entry; `None` if it is empty.
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_lowercase();
        if entry == "*" {
            return Some(Self::Everyone);
        }
        if let Some((address, bits)) = entry.split_once('/')
            && let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse())
            && bits <= width(address)
        {
            return Some(Self::Network(address, bits));
        }
        if let Ok(address) = entry.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical(), None));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (&*entry, None),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical(), port));
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let below = match host {
            "" | "." => return None,
            host if host.starts_with('.') => host.to_owned(),
            host => format!(".{host}"),
        };
        Some(Self::Domain { itself: !host.starts_with('.'), below, port })
    }

    fn holds(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let is_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Self::Everyone => true,
            Self::Network(network, bits) => {
                address.is_some_and(|address| is_within(address, *network, *bits))
            }
            Self::Address(wanted, at) => address == Some(*wanted) && is_port(at),
            Self::Domain { below, itself, port } => {
                let is_it = host.ends_with(below) || (*itself && *host == below[1..]);
                address.is_none() && is_it && is_port(port)
            }
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let differing = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => return false,
    };
    differing >= u32::from(bits)
}

#[cfg(test)]
mod tests;
