//! Limits on connections: few for each client, few in total, and none for long.
//!
//! A new connection is always accepted. If there are too many, the oldest connection of the client
//! with most connections is closed. So a client that keeps connections open harms only itself.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::sync::Mutex;

/// How many connections are allowed, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub connections: usize,
    pub per_client: usize,
    /// From accepting the connection to the end of the response.
    pub lifetime: Duration,
}

impl ConnectionLimits {
    /// There are one or two Prometheus servers. Pages are long and may be read slowly.
    pub const METRICS: Self =
        Self { connections: 16, per_client: 4, lifetime: Duration::from_secs(30) };
    /// Kubelet probes from one address. Responses are short.
    pub const PROBES: Self =
        Self { connections: 64, per_client: 16, lifetime: Duration::from_secs(5) };
}

/// The connections of one listener.
#[derive(Clone)]
pub struct Connections {
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Default)]
struct OpenConnections {
    /// The oldest first.
    connections: Vec<Connection>,
    next: u64,
}

struct Connection {
    id: u64,
    client: IpAddr,
    task: AbortHandle,
}

/// Removes a connection from the table when it ends.
struct RemoveOnDrop(Arc<Mutex<OpenConnections>>, u64);

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Serves a connection within its lifetime.
    pub fn add(&self, client: IpAddr, serving: impl Future<Output = ()> + Send + 'static) {
        let client = client_address(client);
        let mut open = self.open.lock();
        let make_room = open.make_room(client, &self.limits);
        let id = open.next;
        open.next += 1;
        let remove_on_drop = RemoveOnDrop(Arc::clone(&self.open), id);
        let lifetime = self.limits.lifetime;
        let task = tokio::spawn(async move {
            let _leaving = remove_on_drop;
            let _ = timeout(lifetime, serving).await;
        });
        open.connections.push(Connection { id, client, task: task.abort_handle() });
        drop(open);
        if let Some(make_room) = make_room {
            make_room.abort();
        }
    }
}

impl OpenConnections {
    /// Removes the connection that has to be closed for a new one of this client, if there are too
    /// many.
    fn make_room(&mut self, client: IpAddr, limits: &ConnectionLimits) -> Option<AbortHandle> {
        let count = |client| self.connections.iter().filter(|one| one.client == client).count();
        let from = if count(client) >= limits.per_client {
            client
        } else if self.connections.len() >= limits.connections {
            // Reversed, as `max_by_key` returns the last maximum and the oldest is wanted.
            self.connections.iter().rev().max_by_key(|one| count(one.client))?.client
        } else {
            return None;
        };
        let oldest = self.connections.iter().position(|one| one.client == from)?;
        Some(self.connections.remove(oldest).task)
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.0.lock().connections.retain(|one| one.id != self.1);
    }
}

/// Returns the address that identifies a client: for IPv6 its /64 network, as a host has all its
/// addresses.
fn client_address(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ConnectionLimits =
        ConnectionLimits { connections: 4, per_client: 3, lifetime: Duration::from_secs(10) };

    fn clients(connections: &Connections) -> Vec<String> {
        connections.open.lock().connections.iter().map(|one| one.client.to_string()).collect()
    }

    fn add(connections: &Connections, client: &str) {
        connections.add(client.parse().unwrap(), std::future::pending());
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_connections_close_one_of_the_client_with_most() {
        let connections = Connections::new(BOUNDS);
        for client in ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.9"] {
            add(&connections, client);
        }
        assert_eq!(clients(&connections), ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9"]);
        add(&connections, "10.0.0.2");
        assert_eq!(clients(&connections), ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn among_equals_the_oldest_is_closed() {
        let connections = Connections::new(BOUNDS);
        for last in 1..=6 {
            add(&connections, &format!("10.0.0.{last}"));
        }
        assert_eq!(clients(&connections), ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_by_itself_or_with_its_lifetime() {
        let connections = Connections::new(BOUNDS);
        add(&connections, "10.0.0.1");
        connections.add("10.0.0.2".parse().unwrap(), std::future::ready(()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(clients(&connections), ["10.0.0.1"]);
        tokio::time::sleep(BOUNDS.lifetime).await;
        assert!(clients(&connections).is_empty());
    }

    #[test]
    fn a_client_is_one_ipv4_address_or_one_ipv6_network() {
        let client_address = |text: &str| client_address(text.parse().unwrap()).to_string();
        assert_eq!(client_address("10.0.0.1"), "10.0.0.1");
        assert_eq!(client_address("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(client_address("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
