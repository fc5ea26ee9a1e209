//! Greetings: what is said on a new connection, and what is checked on the first.

use redis::Pipeline;

use super::fault::{Fault, engine, unreachable};
use super::link::Link;
use super::{reply, route, script};
use crate::error::Result;

/// Oldest server with all commands that are used.
const OLDEST: (u32, u32) = (4, 0);

/// Selects the database and loads the scripts, in one round trip.
pub(super) async fn prepare(place: &str, link: &Link, db: u32) -> Result<()> {
    let mut pipe = Pipeline::new();
    if db != 0 {
        pipe.cmd("SELECT").arg(db);
    }
    for script in script::ALL {
        pipe.add_command(script.load());
    }
    let values =
        link.exchange(&pipe).await.map_err(|silence| unreachable(place, silence.cause()))?;
    match values.iter().find_map(Fault::of) {
        Some(fault) => Err(fault.into_refusal(place)),
        None => Ok(()),
    }
}

/// Refuses a server that is too old, and keeps it from evicting records.
pub(super) async fn check_server(place: &str, link: &Link) -> Result<()> {
    let mut pipe = Pipeline::new();
    pipe.cmd("INFO");
    let values =
        link.exchange(&pipe).await.map_err(|silence| unreachable(place, silence.cause()))?;
    let Some(value) = values.into_iter().next() else { return Ok(()) };
    if let Some(fault) = Fault::of(&value) {
        tracing::warn!(place, "the server does not answer INFO: {}", fault.text());
        return Ok(());
    }
    let Ok(raw) = reply::bytes(value, "INFO") else {
        return Err(route::odd(place, &link.endpoint));
    };
    let raw = raw.unwrap_or_default();
    let text = String::from_utf8_lossy(&raw);
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    if let Some(version) = field("redis_version")
        && is_too_old(version)
    {
        let (major, minor) = OLDEST;
        return Err(engine(
            place,
            format!("Redis {version} is older than {major}.{minor}, which this client needs"),
        ));
    }
    // A server that keeps values on flash evicts to there and loses nothing.
    let policy = field("maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" && field("storage_provider") != Some("flash") {
        forbid_eviction(place, link, policy).await;
    }
    Ok(())
}

async fn forbid_eviction(place: &str, link: &Link, policy: &str) {
    let mut pipe = Pipeline::new();
    pipe.cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg("noeviction");
    let refused = match link.exchange(&pipe).await {
        Ok(values) => values.iter().find_map(Fault::of).map(|fault| fault.text().to_owned()),
        Err(silence) => Some(silence.cause()),
    };
    match refused {
        None => tracing::info!(place, "changed the server's maxmemory-policy to noeviction"),
        Some(cause) => tracing::warn!(
            place,
            "the server may evict metadata: its maxmemory-policy is {policy}, \
             and changing it to noeviction failed: {cause}"
        ),
    }
}

fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_before_4_0_are_too_old() {
        assert!(is_too_old("3.2.12"));
        assert!(!is_too_old("4.0.0"));
        assert!(!is_too_old("7.2.4"));
        assert!(!is_too_old("unknown"));
    }
}
