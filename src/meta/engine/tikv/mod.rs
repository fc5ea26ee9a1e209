//! The engine on TiKV: the mapping of [`super::kv`] on transactions of the `tikv-client` crate.
//!
//! It knows addresses, timestamps, locks and what becomes of a commit. It does not know what a key
//! or a value means.

mod address;
mod fault;
mod patience;
mod phases;
mod probe;
mod settle;
mod store;
mod txn;

use std::sync::Arc;
use std::time::Duration;

use tikv_client::{Config, TransactionClient};
use tokio::time::timeout;

use address::{Address, TlsFiles};
use store::TikvStore;

use super::Env;
use super::kv::{KvEngine, KvStore};
use crate::error::{Error, Result};
use crate::policy::{OpenedFile, Policy};

/// For PD to be found and to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// For one request. The library repeats those that may be.
const REQUEST: Duration = Duration::from_secs(5);
/// Well above what a page of a listing can hold.
const MESSAGE: usize = 32 << 20;

/// Opens the volume that `url` names.
pub async fn connect_under(url: &str, env: Env<'_>, policy: &Arc<Policy>) -> Result<KvEngine> {
    Ok(KvEngine::new(open_under(url, env, policy).await?))
}

/// The store below the engine, for who puts something in between.
pub async fn open(url: &str, env: Env<'_>) -> Result<Arc<dyn KvStore>> {
    open_under(url, env, &Policy::unrestricted()).await
}

/// As [`open`], as far as `policy` lets it: files, and the addresses of PD servers. Those of the
/// servers that PD names are for the library.
async fn open_under(url: &str, env: Env<'_>, policy: &Arc<Policy>) -> Result<Arc<dyn KvStore>> {
    let mut address = Address::parse(url, env)?;
    may_connect(&address, policy).await?;
    if address.verify_cn {
        tracing::warn!(
            "{}: verify-cn has no effect: it is for servers, about who calls them. \
             Servers are known by the host names in their certificates",
            address.place
        );
    }
    let mut config =
        Config::default().with_timeout(REQUEST).with_grpc_max_decoding_message_size(MESSAGE);
    let mut opened = Vec::new();
    if let Some(files) = &mut address.tls {
        opened = open_files(files, &address.place, policy)?;
        config = config.with_security(&files.ca, &files.cert, &files.key);
    }
    let connecting = TransactionClient::new_with_config(address.pds.clone(), config);
    let what = match timeout(CONNECT, connecting).await {
        Ok(Ok(client)) => return Ok(Arc::new(TikvStore::new(client, address, opened))),
        Ok(Err(_)) => "no PD server answered".to_owned(),
        Err(_) => format!("no PD server answered within {} s", CONNECT.as_secs()),
    };
    let reasons = probe::explain(&address.pds, address.tls.as_ref()).await;
    Err(Error::Unreachable { place: address.place, cause: format!("{what}: {reasons}") })
}

async fn may_connect(address: &Address, policy: &Policy) -> Result<()> {
    if !policy.is_restricted() {
        return Ok(());
    }
    for pd in &address.pds {
        let host = pd.rsplit_once(':').map_or(pd.as_str(), |(host, _)| host);
        // One that is not known now may be later, and others may do.
        if let Err(error @ Error::Forbidden(_)) = policy.addresses(host, 0).await {
            return Err(error);
        }
    }
    Ok(())
}

/// Opens the files, and has the library read what was opened. It reads them again for each
/// connection, and would say of a bad one that no server answers.
fn open_files(files: &mut TlsFiles, place: &str, policy: &Policy) -> Result<Vec<OpenedFile>> {
    let mut all = Vec::new();
    let each = [("ca", &mut files.ca), ("cert", &mut files.cert), ("key", &mut files.key)];
    for (option, path) in each {
        let within = |error: Error| match error {
            Error::BadInput(what) => Error::bad_input(format!("metadata address {place}: {what}")),
            other => other,
        };
        if !is_pem(&policy.read_file(option, path).map_err(within)?) {
            let what = format!("{option} {}: not a PEM file", path.display());
            return Err(within(Error::BadInput(what)));
        }
        let opened = policy.open_file(option, path).map_err(within)?;
        opened.path().clone_into(path);
        all.push(opened);
    }
    Ok(all)
}

fn is_pem(text: &[u8]) -> bool {
    pem::parse_many(text).is_ok_and(|parts| !parts.is_empty())
}
