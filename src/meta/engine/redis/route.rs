//! Routes: finding the server in charge of the volume.
//!
//! All keys of a volume lie on one server: alone, behind sentinels, or as the one slot of a cluster
//! that the prefix `{db}` selects. So one link is enough, and only the finding differs.

use redis::{Cmd, Value};

use super::address::{Address, Endpoint, Topology};
use super::fault::{Fault, engine, unreachable};
use super::link::{Dialer, Link};
use super::reply;
use crate::error::{Error, Result};

/// Connects to the server in charge.
pub(super) async fn open(dialer: &Dialer, address: &Address, prefix: &str) -> Result<Link> {
    match &address.topology {
        Topology::Single(endpoint) => dialer.dial(endpoint, &address.login).await,
        Topology::Sentinel { master, sentinels } => {
            let endpoint = ask_sentinels(dialer, address, master, sentinels).await?;
            dialer.dial(&endpoint, &address.login).await
        }
        Topology::Cluster(nodes) => {
            let (endpoint, link) = ask_nodes(dialer, address, prefix, nodes).await?;
            if link.endpoint == endpoint {
                return Ok(link);
            }
            dialer.dial(&endpoint, &address.login).await
        }
    }
}

/// Whether the server belongs to a cluster.
pub(super) async fn is_cluster(place: &str, link: &Link) -> Result<bool> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    match ask(link, info).await {
        Ok(value) => {
            let text = reply::bytes(value, "CLUSTER INFO")?.unwrap_or_default();
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

async fn ask_sentinels(
    dialer: &Dialer,
    address: &Address,
    master: &str,
    sentinels: &[Endpoint],
) -> Result<Endpoint> {
    let mut failure = unreachable(&address.place, "no sentinel is named");
    for sentinel in sentinels {
        let answer = async {
            let link = dialer.dial(sentinel, &address.sentinel_login).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("get-master-addr-by-name").arg(master);
            let value = ask(&link, question).await.map_err(|e| e.at(&address.place, sentinel))?;
            let parts = reply::list(value, "sentinel")?;
            match parts.as_slice() {
                [Some(host), Some(port)] => tcp(host, port),
                _ => Err(engine(
                    &address.place,
                    format!("sentinel {sentinel} knows no master {master:?}"),
                )),
            }
        };
        match answer.await {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The node that serves our slot, and the link to the node that said so.
async fn ask_nodes(
    dialer: &Dialer,
    address: &Address,
    prefix: &str,
    nodes: &[Endpoint],
) -> Result<(Endpoint, Link)> {
    let mut failure = unreachable(&address.place, "no cluster node is named");
    for node in nodes {
        let answer = async {
            let link = dialer.dial(node, &address.login).await?;
            let trouble = |e: Trouble| e.at(&address.place, node);
            let mut question = redis::cmd("CLUSTER");
            question.arg("KEYSLOT").arg(prefix);
            let slot = ask(&link, question).await.map_err(trouble)?;
            let mut question = redis::cmd("CLUSTER");
            question.arg("SLOTS");
            let slots = ask(&link, question).await.map_err(trouble)?;
            match (&slot, owner(&slot, slots, node)) {
                (_, Some(endpoint)) => Ok((endpoint, link)),
                (slot, None) => Err(unreachable(
                    &address.place,
                    format!("{node} knows no server for slot {slot:?}"),
                )),
            }
        };
        match answer.await {
            Ok(found) => return Ok(found),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Reads CLUSTER SLOTS: ranges, each with its master first. A node that does not know its own
/// address leaves the host empty.
fn owner(slot: &Value, slots: Value, asked: &Endpoint) -> Option<Endpoint> {
    let (Value::Int(slot), Value::Array(ranges)) = (slot, slots) else { return None };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice()
        else {
            continue;
        };
        if !(*first..=*last).contains(slot) {
            continue;
        }
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = reply::bytes(host.clone(), "cluster node").ok()?.unwrap_or_default();
        let port = u16::try_from(*port).ok()?;
        return match (host.is_empty(), asked) {
            (true, Endpoint::Tcp { host, .. }) => Some(Endpoint::Tcp { host: host.clone(), port }),
            _ => Some(Endpoint::Tcp { host: String::from_utf8(host.to_vec()).ok()?, port }),
        };
    }
    None
}

fn tcp(host: &[u8], port: &[u8]) -> Result<Endpoint> {
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
