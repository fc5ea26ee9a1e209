//! Network addresses that the driver may connect to.
//!
//! A host name is checked by the addresses that it resolves to at the moment of connecting, so a
//! DNS answer that changes in between gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flags::{LINK_LOCAL, LOOPBACK};
use super::{Policy, forbidden_without};
use crate::error::{Error, Result};

/// Cloud metadata services, which hand out a machine's credentials, outside of link-local networks.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
/// IPv4 addresses behind NAT64: `64:ff9b::/96`.
const NAT64_PREFIX: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// Addresses that need a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestrictedAddress {
    Loopback,
    LinkLocal,
}

impl Policy {
    /// Checks whether connections to an address are allowed.
    pub fn check_address(&self, address: IpAddr) -> Result<()> {
        let Some(flags) = self.flags() else { return Ok(()) };
        match restricted(address) {
            Some(RestrictedAddress::Loopback) if !flags.allow_loopback => Err(forbidden_without(
                format!("{address} is an address of the node itself"),
                LOOPBACK,
            )),
            Some(RestrictedAddress::LinkLocal) if !flags.allow_link_local => {
                Err(forbidden_without(
                    format!("{address} is link-local or a cloud metadata service"),
                    LINK_LOCAL,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Checks a host if it is an address and not a name.
    pub fn check_host(&self, host: &str) -> Result<()> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let bare = bare.split_once('%').map_or(bare, |(bare, _)| bare);
        bare.parse().map_or(Ok(()), |address| self.check_address(address))
    }

    /// Resolves a host and returns the allowed addresses. Returns an error that says why if none is
    /// allowed.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let unreachable = |cause: String| Error::Unreachable { place: host.to_owned(), cause };
        let found = tokio::net::lookup_host((host, port)).await;
        let found = found.map_err(|error| unreachable(error.to_string()))?;
        let (mut allowed, mut refusal) = (Vec::new(), None);
        for address in found {
            match self.check_address(address.ip()) {
                Ok(()) => allowed.push(address),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(error) => Err(error),
            None => Err(unreachable("the host name has no address".to_owned())),
        }
    }
}

fn restricted(address: IpAddr) -> Option<RestrictedAddress> {
    match address.to_canonical() {
        IpAddr::V4(address) => restricted_v4(address),
        IpAddr::V6(address) => restricted_v6(address),
    }
}

fn restricted_v4(address: Ipv4Addr) -> Option<RestrictedAddress> {
    // All of 0.0.0.0/8 is this host.
    if address.is_loopback() || address.octets()[0] == 0 {
        Some(RestrictedAddress::Loopback)
    } else if address.is_link_local() || METADATA_V4.contains(&address) {
        Some(RestrictedAddress::LinkLocal)
    } else {
        None
    }
}

fn restricted_v6(address: Ipv6Addr) -> Option<RestrictedAddress> {
    let parts = address.segments();
    let embedded = Ipv4Addr::from_bits(u32::from(parts[6]) << 16 | u32::from(parts[7]));
    if address.is_loopback() || address.is_unspecified() {
        Some(RestrictedAddress::Loopback)
    } else if address.is_unicast_link_local() || METADATA_V6.contains(&address) {
        Some(RestrictedAddress::LinkLocal)
    } else if parts[..6] == NAT64_PREFIX || parts[..6] == [0; 6] {
        restricted_v4(embedded)
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
    fn a_flag_allows_its_own_addresses_and_no_others() {
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
    async fn a_name_is_checked_by_what_it_resolves_to() {
        let policy = Policy::new(Flags::default()).unwrap();
        // Only the resolver understands the last two forms.
        for host in ["localhost", "127.1", "2130706433"] {
            let refusal = policy.addresses(host, 80).await.unwrap_err();
            assert!(matches!(refusal, Error::Forbidden(_)), "{host}: {refusal}");
        }
        assert_eq!(policy.addresses("10.0.0.1", 80).await.unwrap().len(), 1);
        assert!(!Policy::unrestricted().addresses("localhost", 80).await.unwrap().is_empty());
    }
}
