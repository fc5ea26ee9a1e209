//! Telling the service manager how far things are.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::debug;

/// The volume is mounted.
pub fn ready() {
    tell("READY=1");
}

/// The volume is about to be unmounted.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Nobody listens unless the service manager said where.
fn tell(state: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&place),
    };
    let told = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    });
    if let Err(error) = told {
        debug!(%error, "the service manager was not told {state}");
    }
}
