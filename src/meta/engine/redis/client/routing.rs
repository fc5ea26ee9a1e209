//! Finds the server in charge of the volume.
//!
//! All keys of a volume are on one server: a single server, a master that sentinels watch, or the
//! cluster node that owns the slot of the prefix `{db}`. So one connection is enough, and only the
//! way to find the server differs.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::{Cmd, Value};

use super::address::{Address, Endpoint, Topology};
use super::connection::{Connection, Dialer};
use super::server_error::{ServerError, engine_error, unreachable_error};
use super::{reply, single};
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Bytes of a host name.
const MAX_HOST_BYTES: usize = 255;

/// Cluster nodes that are asked in addition to those of the address. All are asked at once, and a
/// server may name any number of nodes.
const MAX_KNOWN_NODES: usize = 32;

/// Connects to the server in charge. Stores the cluster's nodes in `known_nodes`, so that the cluster
/// is found again when the nodes of the address are gone.
pub(super) async fn open(
    dialer: &Dialer,
    address: &Address,
    prefix: &str,
    known_nodes: &Mutex<Vec<Endpoint>>,
) -> Result<Connection> {
    let endpoint = match &address.topology {
        Topology::Single(endpoint) => endpoint.clone(),
        Topology::Sentinel { master, sentinels } => {
            let asks = sentinels.iter().map(|it| ask_sentinel(dialer, address, master, it));
            first_success(asks, &address.place).await?
        }
        Topology::Cluster(nodes) => {
            let mut all = nodes.clone();
            let known = known_nodes.lock().clone();
            all.extend(known.into_iter().filter(|node| !nodes.contains(node)));
            let asks = all.iter().map(|node| ask_node(dialer, address, prefix, node));
            let found = first_success(asks, &address.place).await?;
            let mut nodes = found.nodes;
            nodes.truncate(MAX_KNOWN_NODES);
            *known_nodes.lock() = nodes;
            if found.connection.endpoint == found.owner {
                return Ok(found.connection);
            }
            found.owner
        }
    };
    dialer.dial(&endpoint, &address.login).await
}

/// Asks all servers at once and returns the first success. If all fail, returns the most telling
/// error: that a server refused, rather than that one could not be reached.
async fn first_success<T>(
    asks: impl IntoIterator<Item = impl Future<Output = Result<T>>>,
    place: &str,
) -> Result<T> {
    let mut asks: FuturesUnordered<_> = asks.into_iter().collect();
    let mut failure = unreachable_error(place, "the address names no server to ask");
    while let Some(result) = asks.next().await {
        match result {
            Ok(found) => return Ok(found),
            Err(error) if matches!(failure, Error::Unreachable { .. }) => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Returns the error for a server that is not Redis.
pub(super) fn not_redis(place: &str, endpoint: &Endpoint) -> Error {
    engine_error(place, format!("{endpoint} does not answer as Redis does"))
}

/// Returns whether the server belongs to a cluster.
pub(super) async fn is_cluster(place: &str, connection: &Connection) -> Result<bool> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    match run(connection, info).await {
        Ok(value) => {
            let Ok(text) = reply::bytes(value, "CLUSTER INFO") else {
                return Err(not_redis(place, &connection.endpoint));
            };
            let text = text.unwrap_or_default();
            Ok(String::from_utf8_lossy(&text).contains("cluster_state:"))
        }
        Err(CommandError::Server(error)) if matches!(error.code(), "NOAUTH" | "LOADING") => {
            Err(error.into_connect_error(place))
        }
        // Not a cluster, or a proxy that does not know the command.
        Err(CommandError::Server(_)) => Ok(false),
        Err(CommandError::NoReply(cause)) => Err(unreachable_error(place, cause)),
    }
}

async fn ask_sentinel(
    dialer: &Dialer,
    address: &Address,
    master: &str,
    sentinel: &Endpoint,
) -> Result<Endpoint> {
    let connection = dialer.dial(sentinel, &address.sentinel_login).await?;
    let mut cmd = redis::cmd("SENTINEL");
    cmd.arg("get-master-addr-by-name").arg(master);
    let asking = async {
        let value = run(&connection, cmd).await.map_err(|e| e.at(&address.place, sentinel))?;
        reply::list(value, "sentinel")
    };
    let parts = dialer.within_dial_timeout(&connection, asking).await?;
    let [Some(host), Some(port)] = parts.as_slice() else {
        let cause = format!("sentinel {sentinel} knows no master {master:?}");
        return Err(engine_error(&address.place, cause));
    };
    tcp(host, port)
}

/// The cluster as one node describes it.
struct ClusterView {
    /// The node that owns the volume's slot.
    owner: Endpoint,
    /// All nodes.
    nodes: Vec<Endpoint>,
    /// The connection to the node that was asked.
    connection: Connection,
}

async fn ask_node(
    dialer: &Dialer,
    address: &Address,
    prefix: &str,
    node: &Endpoint,
) -> Result<ClusterView> {
    let connection = dialer.dial(node, &address.login).await?;
    let mut pipe = redis::pipe();
    pipe.cmd("CLUSTER").arg("KEYSLOT").arg(prefix);
    pipe.cmd("CLUSTER").arg("SLOTS");
    let asking = async {
        let values = connection
            .exchange(&pipe)
            .await
            .map_err(|no_reply| CommandError::NoReply(no_reply.cause()).at(&address.place, node))?;
        match values.iter().find_map(ServerError::of) {
            Some(error) => Err(error.into_connect_error(&address.place)),
            None => Ok(values),
        }
    };
    let values = dialer.within_dial_timeout(&connection, asking).await?;
    let (owner, nodes) = read_slots(&values, node);
    let Some(owner) = owner else {
        let cause = format!("{node} knows no server for {prefix}");
        return Err(unreachable_error(&address.place, cause));
    };
    Ok(ClusterView { owner, nodes, connection })
}

/// Reads the replies to KEYSLOT and SLOTS: a slot number, and ranges of slots, each with its master
/// and then its replicas.
fn read_slots(values: &[Value], asked: &Endpoint) -> (Option<Endpoint>, Vec<Endpoint>) {
    let (mut owner, mut nodes) = (None, Vec::new());
    let [Value::Int(slot), Value::Array(ranges)] = values else { return (owner, nodes) };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), Value::Int(last), servers @ ..] = parts.as_slice() else {
            continue;
        };
        let servers: Vec<Endpoint> =
            servers.iter().filter_map(|server| read_node(server, asked)).collect();
        if (*first..=*last).contains(slot) {
            owner = servers.first().cloned();
        }
        nodes.extend(servers);
    }
    nodes.sort();
    nodes.dedup();
    (owner, nodes)
}

/// Reads one node of CLUSTER SLOTS. A node that does not know its own address leaves the host empty.
fn read_node(node: &Value, asked: &Endpoint) -> Option<Endpoint> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = reply::bytes(host.clone(), "cluster node").ok()?.unwrap_or_default();
    let host = match asked {
        Endpoint::Tcp { host: asked, .. } if host.is_empty() => asked.clone(),
        _ => String::from_utf8(host.to_vec()).ok().filter(|host| host.len() <= MAX_HOST_BYTES)?,
    };
    Some(Endpoint::Tcp { host, port: u16::try_from(*port).ok()? })
}

fn tcp(host: &[u8], port: &[u8]) -> Result<Endpoint> {
    if host.len() > MAX_HOST_BYTES || port.len() > MAX_HOST_BYTES {
        return Err(Error::damaged("sentinel", "the address is longer than any host name"));
    }
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    let port = text(port)
        .parse()
        .map_err(|_| Error::damaged("sentinel", format!("{:?} is not a port", text(port))))?;
    Ok(Endpoint::Tcp { host: text(host), port })
}

enum CommandError {
    Server(ServerError),
    NoReply(String),
}

impl CommandError {
    fn at(self, place: &str, endpoint: &Endpoint) -> Error {
        match self {
            Self::Server(error) => error.into_error(place, ""),
            Self::NoReply(cause) => unreachable_error(place, format!("{endpoint}: {cause}")),
        }
    }
}

async fn run(connection: &Connection, cmd: Cmd) -> Result<Value, CommandError> {
    let values = connection.exchange(&single(cmd)).await;
    let values = values.map_err(|no_reply| CommandError::NoReply(no_reply.cause()))?;
    match values.into_iter().next() {
        Some(value) => match ServerError::of(&value) {
            Some(error) => Err(CommandError::Server(error)),
            None => Ok(value),
        },
        None => Err(CommandError::NoReply("an empty reply".to_owned())),
    }
}
