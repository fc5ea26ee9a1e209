//! The engine on TiKV: the mapping of [`super::kv`] on transactions of the `tikv-client` crate.
//!
//! It knows addresses, timestamps, locks and what becomes of a commit. It does not know what a key
//! or a value means.

mod address;
mod fault;
mod patience;
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
use super::kv::KvEngine;
use crate::error::{Error, Result};

/// For PD to be found and to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// For one request. The library repeats those that may be.
const REQUEST: Duration = Duration::from_secs(5);
/// Well above what a page of a listing can hold.
const MESSAGE: usize = 64 << 20;

/// Opens the volume that `url` names.
pub async fn connect(url: &str, env: Env<'_>) -> Result<KvEngine> {
    let address = Address::parse(url, env)?;
    let mut config =
        Config::default().with_timeout(REQUEST).with_grpc_max_decoding_message_size(MESSAGE);
    if let Some(files) = &address.tls {
        check(files, &address.place).await?;
        config = config.with_security(&files.ca, &files.cert, &files.key);
    }
    let fail = |cause: String| Error::Unreachable { place: address.place.clone(), cause };
    let connecting = TransactionClient::new_with_config(address.pds.clone(), config);
    let client = timeout(CONNECT, connecting)
        .await
        .map_err(|_| fail(format!("no PD server answered within {} s", CONNECT.as_secs())))?
        .map_err(|error| fail(format!("no PD server answered: {error}")))?;
    let store = TikvStore::new(client, address);
    Ok(KvEngine::new(Arc::new(store)))
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
