//! The host name and addresses in a session record.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::unistd::gethostname;

/// The host name; empty if the system does not return one.
pub fn name() -> String {
    gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Addresses of interfaces that are up, without loopback; only of the named ones, if any are named.
pub fn addresses(interfaces: &[String]) -> Vec<String> {
    let Ok(found) = getifaddrs() else { return Vec::new() };
    found
        .filter(|interface| {
            interface.flags.contains(InterfaceFlags::IFF_UP)
                && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
                && (interfaces.is_empty() || interfaces.contains(&interface.interface_name))
        })
        .filter_map(|interface| {
            let address = interface.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(four), _) => std::net::IpAddr::from(four.ip()),
                (None, Some(six)) => std::net::IpAddr::from(six.ip()),
                (None, None) => return None,
            };
            (!ip.is_loopback()).then(|| ip.to_string())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_requested_interfaces_are_returned() {
        assert!(addresses(&["no-such-interface".to_owned()]).is_empty());
    }

    #[test]
    fn no_address_is_loopback() {
        for address in addresses(&[]) {
            assert!(!address.parse::<std::net::IpAddr>().unwrap().is_loopback(), "{address}");
        }
    }
}
