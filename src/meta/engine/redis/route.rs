//! Routes: finding the server in charge of the volume.
//!
//! All keys of a volume lie on one server: alone, behind sentinels, or as the one slot of a cluster
//! that the prefix `{db}` selects. So one link is enough, and only the finding differs.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::{Cmd, Value};

use super::address::{Address, Endpoint, Topology};
use super::fault::{Fault, engine, unreachable};
use super::link::{Dialer, Link};
use super::reply;
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Bytes of a host's name.
const LONGEST_HOST: usize = 255;

/// Nodes of a cluster that are asked beside those of the address. All are asked at once, and a server
/// may tell of any number.
const REMEMBERED: usize = 32;

/// Connects to the server in charge. Cluster nodes that others tell of are added to `known`, so
/// that the cluster is found again when those of the address are gone.
pub(super) async fn open(
    dialer: &Dialer,
    address: &Address,
    prefix: &str,
    known: &Mutex<Vec<Endpoint>>,
) -> Result<Link> {
    let endpoint = match &address.topology {
        Topology::Single(endpoint) => endpoint.clone(),
        Topology::Sentinel { master, sentinels } => {
            let asks = sentinels.iter().map(|it| ask_sentinel(dialer, address, master, it));
            first_answer(asks, &address.place).await?
        }
        Topology::Cluster(nodes) => {
            let mut all = nodes.clone();
            let told = known.lock().clone();
            all.extend(told.into_iter().filter(|node| !nodes.contains(node)));
            let asks = all.iter().map(|node| ask_node(dialer, address, prefix, node));
            let found = first_answer(asks, &address.place).await?;
            let mut nodes = found.nodes;
            nodes.truncate(REMEMBERED);
            *known.lock() = nodes;
            if found.link.endpoint == found.owner {
                return Ok(found.link);
            }
            found.owner
        }
    };
    dialer.dial(&endpoint, &address.login).await
}

/// Asks all at once and takes the first answer; without any, the failure that says most.
async fn first_answer<T>(
    asks: impl IntoIterator<Item = impl Future<Output = Result<T>>>,
    place: &str,
) -> Result<T> {
    let mut asks: FuturesUnordered<_> = asks.into_iter().collect();
    let mut failure = unreachable(place, "the address names no server to ask");
    while let Some(answer) = asks.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            Err(error) if matches!(failure, Error::Unreachable { .. }) => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// What is told of a server that is no Redis.
pub(super) fn odd(place: &str, endpoint: &Endpoint) -> Error {
    engine(place, format!("{endpoint} does not answer as Redis does"))
}

/// Whether the server belongs to a cluster.
pub(super) async fn is_cluster(place: &str, link: &Link) -> Result<bool> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    match ask(link, info).await {
        Ok(value) => {
            let Ok(text) = reply::bytes(value, "CLUSTER INFO") else {
                return Err(odd(place, &link.endpoint));
            };
            let text = text.unwrap_or_default();
            Ok(String::from_utf8_lossy(&text).contains("cluster_state:"))
        }
        Err(Trouble::Fault(fault)) if matches!(fault.code(), "NOAUTH" | "LOADING") => {
            Err(fault.into_refusal(place))
        }
        // Not a cluster, or a proxy that does not know the command.
        Err(Trouble::Fault(_)) => Ok(false),
        Err(Trouble::Silence(cause)) => Err(unreachable(place, cause)),
    }
}

async fn ask_sentinel(
    dialer: &Dialer,
    address: &Address,
    master: &str,
    sentinel: &Endpoint,
) -> Result<Endpoint> {
    let link = dialer.dial(sentinel, &address.sentinel_login).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(master);
    let answer = async {
        let value = ask(&link, question).await.map_err(|e| e.at(&address.place, sentinel))?;
        reply::list(value, "sentinel")
    };
    let parts = dialer.in_time(&link, answer).await?;
    let [Some(host), Some(port)] = parts.as_slice() else {
        let cause = format!("sentinel {sentinel} knows no master {master:?}");
        return Err(engine(&address.place, cause));
    };
    tcp(host, port)
}

/// What a cluster node says.
struct Told {
    /// Who serves our slot.
    owner: Endpoint,
    /// All nodes.
    nodes: Vec<Endpoint>,
    /// The link to the node that said so.
    link: Link,
}

async fn ask_node(
    dialer: &Dialer,
    address: &Address,
    prefix: &str,
    node: &Endpoint,
) -> Result<Told> {
    let link = dialer.dial(node, &address.login).await?;
    let mut pipe = redis::pipe();
    pipe.cmd("CLUSTER").arg("KEYSLOT").arg(prefix);
    pipe.cmd("CLUSTER").arg("SLOTS");
    let answer = async {
        let values = link
            .exchange(&pipe)
            .await
            .map_err(|silence| Trouble::Silence(silence.cause()).at(&address.place, node))?;
        match values.iter().find_map(Fault::of) {
            Some(fault) => Err(fault.into_refusal(&address.place)),
            None => Ok(values),
        }
    };
    let values = dialer.in_time(&link, answer).await?;
    let (owner, nodes) = read_slots(&values, node);
    match owner {
        Some(owner) => Ok(Told { owner, nodes, link }),
        None => Err(unreachable(&address.place, format!("{node} knows no server for {prefix}"))),
    }
}

/// Reads a slot and CLUSTER SLOTS: ranges, each with its master first and then its replicas.
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

/// A node that does not know its own address leaves the host empty.
fn read_node(node: &Value, asked: &Endpoint) -> Option<Endpoint> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = reply::bytes(host.clone(), "cluster node").ok()?.unwrap_or_default();
    let host = match asked {
        Endpoint::Tcp { host: asked, .. } if host.is_empty() => asked.clone(),
        _ => String::from_utf8(host.to_vec()).ok().filter(|host| host.len() <= LONGEST_HOST)?,
    };
    Some(Endpoint::Tcp { host, port: u16::try_from(*port).ok()? })
}

fn tcp(host: &[u8], port: &[u8]) -> Result<Endpoint> {
    if host.len() > LONGEST_HOST || port.len() > LONGEST_HOST {
        return Err(Error::damaged("sentinel", "an address that is longer than any"));
    }
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    let port = text(port)
        .parse()
        .map_err(|_| Error::damaged("sentinel", format!("{:?} is not a port", text(port))))?;
    Ok(Endpoint::Tcp { host: text(host), port })
}

enum Trouble {
    Fault(Fault),
    Silence(String),
}

impl Trouble {
    fn at(self, place: &str, endpoint: &Endpoint) -> Error {
        match self {
            Self::Fault(fault) => fault.into_error(place, ""),
            Self::Silence(cause) => unreachable(place, format!("{endpoint}: {cause}")),
        }
    }
}

async fn ask(link: &Link, question: Cmd) -> Result<Value, Trouble> {
    let mut pipe = redis::pipe();
    pipe.add_command(question);
    let values = link.exchange(&pipe).await.map_err(|e| Trouble::Silence(e.cause()))?;
    match values.into_iter().next() {
        Some(value) => match Fault::of(&value) {
            Some(fault) => Err(Trouble::Fault(fault)),
            None => Ok(value),
        },
        None => Err(Trouble::Silence("an empty answer".to_owned())),
    }
}
