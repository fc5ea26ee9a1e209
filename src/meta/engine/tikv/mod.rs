//! The engine on TiKV: the mapping of [`super::kv`] on transactions of the `tikv-client` crate.
//!
//! It knows addresses, timestamps, locks and how commits end. It does not know what a key or a
//! value means.

mod address;
mod diagnose;
mod errors;
mod one_phase_commit;
mod retry;
mod store;
mod txn;
mod undetermined_commit;

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

/// Time for a PD server to respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for one request. The library retries requests that are safe to repeat.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest response in bytes, well above the size of one page of a listing.
const MAX_MESSAGE: usize = 32 << 20;

/// Connects to the cluster that `url` names, as far as `policy` allows: files, and the addresses of
/// PD servers.
pub async fn connect(url: &str, env: Env<'_>, policy: &Arc<Policy>) -> Result<KvEngine> {
    Ok(KvEngine::new(open_with_policy(url, env, policy).await?))
}

/// Opens the store without an engine, for tests that wrap it.
pub async fn open(url: &str, env: Env<'_>) -> Result<Arc<dyn KvStore>> {
    open_with_policy(url, env, &Policy::unrestricted()).await
}

/// Like [`open`], as far as `policy` allows. It cannot restrict the addresses of TiKV servers,
/// which the library learns from PD.
async fn open_with_policy(
    url: &str,
    env: Env<'_>,
    policy: &Arc<Policy>,
) -> Result<Arc<dyn KvStore>> {
    let mut address = Address::parse(url, env)?;
    may_connect(&address, policy).await?;
    if address.verify_cn {
        tracing::warn!(
            "{}: verify-cn has no effect: it is a server option that restricts callers. \
             Clients identify servers by the host names in their certificates",
            address.place
        );
    }
    let mut config = Config::default()
        .with_timeout(REQUEST_TIMEOUT)
        .with_grpc_max_decoding_message_size(MAX_MESSAGE);
    let mut opened = Vec::new();
    if let Some(files) = &mut address.tls {
        opened = open_files(files, &address.place, policy)?;
        config = config.with_security(&files.ca, &files.cert, &files.key);
    }
    let connecting = TransactionClient::new_with_config(address.pds.clone(), config);
    let what = match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(client)) => return Ok(Arc::new(TikvStore::new(client, address, opened))),
        Ok(Err(_)) => "no PD server responded".to_owned(),
        Err(_) => format!("no PD server responded within {} s", CONNECT_TIMEOUT.as_secs()),
    };
    let reasons = diagnose::diagnose(&address.pds, address.tls.as_ref()).await;
    Err(Error::Unreachable { place: address.place, cause: format!("{what}: {reasons}") })
}

async fn may_connect(address: &Address, policy: &Policy) -> Result<()> {
    if !policy.is_restricted() {
        return Ok(());
    }
    for pd in &address.pds {
        let host = pd.rsplit_once(':').map_or(pd.as_str(), |(host, _)| host);
        // A host that cannot be resolved now may be later, and the other servers may suffice.
        if let Err(error @ Error::Forbidden(_)) = policy.addresses(host, 0).await {
            return Err(error);
        }
    }
    Ok(())
}

/// Opens the TLS files and points the library to the opened descriptors. The library reads them
/// again for each connection, and would report a bad file as an unreachable server.
fn open_files(files: &mut TlsFiles, place: &str, policy: &Policy) -> Result<Vec<OpenedFile>> {
    let mut all = Vec::new();
    let each = [("ca", &mut files.ca), ("cert", &mut files.cert), ("key", &mut files.key)];
    for (option, path) in each {
        let with_address = |error: Error| match error {
            Error::BadInput(what) => Error::bad_input(format!("metadata address {place}: {what}")),
            other => other,
        };
        if !is_pem(&policy.read_file(option, path).map_err(with_address)?) {
            let what = format!("{option} {}: not a PEM file", path.display());
            return Err(with_address(Error::BadInput(what)));
        }
        let opened = policy.open_file(option, path).map_err(with_address)?;
        opened.path().clone_into(path);
        all.push(opened);
    }
    Ok(all)
}

fn is_pem(text: &[u8]) -> bool {
    pem::parse_many(text).is_ok_and(|parts| !parts.is_empty())
}
