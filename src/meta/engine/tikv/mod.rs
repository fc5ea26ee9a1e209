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

/// For PD to be found and to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// For one request. The library repeats those that may be.
const REQUEST: Duration = Duration::from_secs(5);
/// Well above what a page of a listing can hold.
const MESSAGE: usize = 64 << 20;

/// Opens the volume that `url` names.
pub async fn connect(url: &str, env: Env<'_>) -> Result<KvEngine> {
    Ok(KvEngine::new(open(url, env).await?))
}

/// The store below the engine, for who puts something in between.
pub async fn open(url: &str, env: Env<'_>) -> Result<Arc<dyn KvStore>> {
    let address = Address::parse(url, env)?;
    if address.verify_cn {
        tracing::warn!(
            "{}: verify-cn has no effect: it is for servers, about who calls them. \
             Servers are known by the host names in their certificates",
            address.place
        );
    }
    let mut config =
        Config::default().with_timeout(REQUEST).with_grpc_max_decoding_message_size(MESSAGE);
    if let Some(files) = &address.tls {
        check(files, &address.place).await?;
        config = config.with_security(&files.ca, &files.cert, &files.key);
    }
    let connecting = TransactionClient::new_with_config(address.pds.clone(), config);
    let what = match timeout(CONNECT, connecting).await {
        Ok(Ok(client)) => return Ok(Arc::new(TikvStore::new(client, address))),
        Ok(Err(_)) => "no PD server answered".to_owned(),
        Err(_) => format!("no PD server answered within {} s", CONNECT.as_secs()),
    };
    let reasons = probe::explain(&address.pds, address.tls.as_ref()).await;
    Err(Error::Unreachable { place: address.place, cause: format!("{what}: {reasons}") })
}

/// The library would say that no server answers.
async fn check(files: &TlsFiles, place: &str) -> Result<()> {
    for (option, path) in [("ca", &files.ca), ("cert", &files.cert), ("key", &files.key)] {
        let fail = |cause: &str| {
            let path = path.display();
            Error::bad_input(format!("metadata address {place}: {option} {path}: {cause}"))
        };
        let text = tokio::fs::read(path).await.map_err(|error| fail(&error.to_string()))?;
        if !is_pem(&text) {
            return Err(fail("not a PEM file"));
        }
    }
    Ok(())
}

fn is_pem(text: &[u8]) -> bool {
    pem::parse_many(text).is_ok_and(|parts| !parts.is_empty())
}
