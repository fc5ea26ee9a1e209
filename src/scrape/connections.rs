//! Who is connected: few for each address, few in all, and none for long.
//!
//! A new connection is always taken. If that is one too many, an older one is closed: the oldest of the
//! address that has most. So whoever holds connections open holds up nobody but itself.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::sync::Mutex;

/// How many may be connected at the same time, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub connections: usize,
    pub per_peer: usize,
    /// From the first byte of a request to the last of its answer.
    pub lifetime: Duration,
}

impl Bounds {
    /// Who scrapes is one server, perhaps two. Pages are long and may be read slowly.
    pub const METRICS: Self =
        Self { connections: 16, per_peer: 4, lifetime: Duration::from_secs(30) };
    /// Kubelet asks, from one address. An answer is a word.
    pub const PROBES: Self =
        Self { connections: 64, per_peer: 16, lifetime: Duration::from_secs(5) };
}

/// The connections of one listener.
#[derive(Clone)]
pub struct Connections {
    bounds: Bounds,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    /// The oldest first.
    connections: Vec<Connection>,
    next: u64,
}

struct Connection {
    id: u64,
    peer: IpAddr,
    task: AbortHandle,
}

/// Takes a connection out of the table when it has ended.
struct Leaving(Arc<Mutex<Open>>, u64);

impl Connections {
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, open: Arc::default() }
    }

    /// Serves a connection for as long as it may last.
    pub fn add(&self, peer: IpAddr, serving: impl Future<Output = ()> + Send + 'static) {
        let peer = network(peer);
        let mut open = self.open.lock();
        let surplus = open.surplus(peer, &self.bounds);
        let id = open.next;
        open.next += 1;
        let leaving = Leaving(Arc::clone(&self.open), id);
        let lifetime = self.bounds.lifetime;
        let task = tokio::spawn(async move {
            let _leaving = leaving;
            let _ = timeout(lifetime, serving).await;
        });
        open.connections.push(Connection { id, peer, task: task.abort_handle() });
        drop(open);
        if let Some(surplus) = surplus {
            surplus.abort();
        }
    }
}

impl Open {
    /// Takes the connection out of the table that makes room for one of this address, if none is left.
    fn surplus(&mut self, peer: IpAddr, bounds: &Bounds) -> Option<AbortHandle> {
        let count = |peer| self.connections.iter().filter(|one| one.peer == peer).count();
        let from = if count(peer) >= bounds.per_peer {
            peer
        } else if self.connections.len() >= bounds.connections {
            // The first of the largest: `max_by_key` would answer the last.
            self.connections.iter().rev().max_by_key(|one| count(one.peer))?.peer
        } else {
            return None;
        };
        let oldest = self.connections.iter().position(|one| one.peer == from)?;
        Some(self.connections.remove(oldest).task)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.lock().connections.retain(|one| one.id != self.1);
    }
}

/// What one host can connect from: of IPv6, everybody has a whole network of addresses.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
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

    const BOUNDS: Bounds =
        Bounds { connections: 4, per_peer: 3, lifetime: Duration::from_secs(10) };

    fn peers(connections: &Connections) -> Vec<String> {
        connections.open.lock().connections.iter().map(|one| one.peer.to_string()).collect()
    }

    fn add(connections: &Connections, peer: &str) {
        connections.add(peer.parse().unwrap(), std::future::pending());
    }

    #[tokio::test(start_paused = true)]
    async fn one_too_many_costs_the_address_that_has_most() {
        let connections = Connections::new(BOUNDS);
        for peer in ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.9"] {
            add(&connections, peer);
        }
        assert_eq!(peers(&connections), ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9"]);
        add(&connections, "10.0.0.2");
        assert_eq!(peers(&connections), ["10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn among_equals_the_oldest_goes() {
        let connections = Connections::new(BOUNDS);
        for last in 1..=6 {
            add(&connections, &format!("10.0.0.{last}"));
        }
        assert_eq!(peers(&connections), ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_time_or_before() {
        let connections = Connections::new(BOUNDS);
        add(&connections, "10.0.0.1");
        connections.add("10.0.0.2".parse().unwrap(), std::future::ready(()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(peers(&connections), ["10.0.0.1"]);
        tokio::time::sleep(BOUNDS.lifetime).await;
        assert!(peers(&connections).is_empty());
    }

    #[test]
    fn a_host_is_one_address_or_one_network() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("10.0.0.1"), "10.0.0.1");
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
