//! Metadata addresses: choosing the engine, and masking passwords.

use std::sync::Arc;

use super::{Engine, kv, redis, sqlite, tikv};
use crate::error::{Error, Result};
use crate::policy::Policy;

/// Environment variables by name. They are passed rather than read from the process, since each
/// volume in a process has its own.
pub type Env<'a> = &'a (dyn Fn(&str) -> Option<String> + Send + Sync);

/// Opens the store that `url` names, with the environment of the process.
pub async fn connect(url: &str) -> Result<Arc<dyn Engine>> {
    connect_with(url, &|name| std::env::var(name).ok(), &Policy::unrestricted()).await
}

/// Opens the store that `url` names, if `policy` allows it.
pub async fn connect_with(
    url: &str,
    env: Env<'_>,
    policy: &Arc<Policy>,
) -> Result<Arc<dyn Engine>> {
    policy.check_metadata(url)?;
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    match scheme {
        "redis" | "rediss" | "unix" => Ok(Arc::new(redis::connect_under(url, env, policy).await?)),
        "sqlite3" => sqlite::connect(url, policy).await,
        "tikv" => Ok(Arc::new(tikv::connect(url, env, policy).await?)),
        "memkv" => Ok(Arc::new(kv::memory(rest))),
        _ => Err(Error::bad_input(format!(
            "metadata address {}: unknown scheme {scheme:?}",
            masked(url)
        ))),
    }
}

/// Returns the address with its password replaced by `****`.
pub fn masked(url: &str) -> String {
    let Some(at) = url.rfind('@') else { return url.to_owned() };
    let start = url.find("://").map_or(0, |i| i + 3);
    match url.get(start..at).and_then(|user| user.find(':')) {
        Some(colon) => format!("{}:****{}", &url[..start + colon], &url[at..]),
        None => url.to_owned(),
    }
}
