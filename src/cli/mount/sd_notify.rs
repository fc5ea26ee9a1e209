//! Notifications to the service manager, as `sd_notify(3)` sends them.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::debug;

/// Reports that the volume is mounted.
pub fn ready() {
    notify("READY=1");
}

/// Reports that the volume is about to be unmounted.
pub fn stopping() {
    notify("STOPPING=1");
}

/// Does nothing unless a service manager has set `NOTIFY_SOCKET`.
fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&socket),
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    });
    if let Err(error) = sent {
        debug!(%error, "cannot send {state} to the service manager");
    }
}
