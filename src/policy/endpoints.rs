//! Addresses that a connection may be made to.
//!
//! A name is judged by what it resolves to, at the moment of connecting: one that changes its answer
//! in between gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flags::{LINK_LOCAL, LOOPBACK};
use super::{Policy, refused};
use crate::error::{Error, Result};

/// Where clouds tell a machine about itself, with its credentials, outside of link-local networks.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
/// IPv4 behind a translator: `64:ff9b::/96`.
const TRANSLATED: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// What there is to say against an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Loopback,
    LinkLocal,
}

impl Policy {
    /// Whether a connection to this address may be made.
    pub fn check_address(&self, address: IpAddr) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        match kind(address) {
            Some(Kind::Loopback) if !flags.allow_loopback => {
                Err(refused(format!("{address} is an address of the node itself"), LOOPBACK))
            }
            Some(Kind::LinkLocal) if !flags.allow_link_local => Err(refused(
                format!("{address} is link-local or tells machines about themselves"),
                LINK_LOCAL,
            )),
            _ => Ok(()),
        }
    }

    /// As [`Policy::check_address`], if the host is an address and not a name.
    pub fn check_host(&self, host: &str) -> Result<()> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let bare = bare.split_once('%').map_or(bare, |(bare, _)| bare);
        bare.parse().map_or(Ok(()), |address| self.check_address(address))
    }

    /// The addresses of a host that a connection may be made to. If none of them may, the error
    /// says why.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let away = |cause: String| Error::Unreachable { place: host.to_owned(), cause };
        let found = tokio::net::lookup_host((host, port)).await;
        let found = found.map_err(|error| away(error.to_string()))?;
        let (mut good, mut refusal) = (Vec::new(), None);
        for address in found {
            match self.check_address(address.ip()) {
                Ok(()) => good.push(address),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            _ if !good.is_empty() => Ok(good),
            Some(error) => Err(error),
            None => Err(away("the name has no address".to_owned())),
        }
    }
}

fn kind(address: IpAddr) -> Option<Kind> {
    match address.to_canonical() {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<Kind> {
    // All of 0.0.0.0/8 is this host.
    if address.is_loopback() || address.octets()[0] == 0 {
        Some(Kind::Loopback)
    } else if address.is_link_local() || METADATA_V4.contains(&address) {
        Some(Kind::LinkLocal)
    } else {
        None
    }
}

fn kind_v6(address: Ipv6Addr) -> Option<Kind> {
    let parts = address.segments();
    let embedded = Ipv4Addr::from_bits(u32::from(parts[6]) << 16 | u32::from(parts[7]));
    if address.is_loopback() || address.is_unspecified() {
        Some(Kind::Loopback)
    } else if address.is_unicast_link_local() || METADATA_V6.contains(&address) {
        Some(Kind::LinkLocal)
    } else if parts[..6] == TRANSLATED || parts[..6] == [0; 6] {
        kind_v4(embedded)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Flags;

    #[test]
    fn addresses_of_the_node_and_of_clouds_are_refused_in_every_spelling() {
        let policy = Policy::new(Flags::default()).unwrap();
        for (host, flag) in [
            ("127.0.0.1", LOOPBACK),
            ("127.9.9.9", LOOPBACK),
            ("0.0.0.0", LOOPBACK),
            ("[::1]", LOOPBACK),
            ("::", LOOPBACK),
            ("::ffff:127.0.0.1", LOOPBACK),
            ("169.254.169.254", LINK_LOCAL),
            ("[::ffff:169.254.169.254]", LINK_LOCAL),
            ("::ffff:a9fe:a9fe", LINK_LOCAL),
            ("64:ff9b::169.254.169.254", LINK_LOCAL),
            ("::169.254.169.254", LINK_LOCAL),
            ("fe80::1%eth0", LINK_LOCAL),
            ("fd00:ec2::254", LINK_LOCAL),
            ("100.100.100.200", LINK_LOCAL),
            ("168.63.129.16", LINK_LOCAL),
        ] {
            let refusal = policy.check_host(host).unwrap_err().to_string();
            assert!(refusal.contains(flag), "{host}: {refusal}");
        }
        for host in ["10.0.0.1", "192.168.1.1", "2001:db8::1", "fd12::1", "redis.example.com"] {
            policy.check_host(host).unwrap();
        }
    }

    #[test]
    fn a_flag_opens_its_own_addresses_and_no_others() {
        let flags = Flags { allow_loopback: true, ..Flags::default() };
        let policy = Policy::new(flags).unwrap();
        assert!(policy.check_host("127.0.0.1").is_ok());
        assert!(policy.check_host("169.254.169.254").is_err());
        let flags = Flags { allow_link_local: true, ..Flags::default() };
        let policy = Policy::new(flags).unwrap();
        assert!(policy.check_host("169.254.169.254").is_ok());
        assert!(policy.check_host("::1").is_err());
    }

    #[tokio::test]
    async fn a_name_is_judged_by_what_it_resolves_to() {
        let policy = Policy::new(Flags::default()).unwrap();
        // The last two are forms that only the resolver understands.
        for host in ["localhost", "127.1", "2130706433"] {
            let refusal = policy.addresses(host, 80).await.unwrap_err();
            assert!(matches!(refusal, Error::Forbidden(_)), "{host}: {refusal}");
        }
        assert_eq!(policy.addresses("10.0.0.1", 80).await.unwrap().len(), 1);
        assert!(!Policy::unrestricted().addresses("localhost", 80).await.unwrap().is_empty());
    }
}
