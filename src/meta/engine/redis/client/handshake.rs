//! The first exchanges on a new connection: the database, the scripts, and the server's version.

use redis::Pipeline;

use super::super::scripts;
use super::connection::Connection;
use super::request_queue::NoReply;
use super::server_error::{ServerError, engine_error, unreachable_error};
use super::{reply, routing};
use crate::error::Result;

/// The oldest server that has every command this client uses.
const OLDEST_VERSION: (u32, u32) = (4, 0);

/// Selects the database and loads the scripts, in one round trip.
pub(super) async fn prepare(place: &str, connection: &Connection, db: u32) -> Result<()> {
    let mut pipe = Pipeline::new();
    if db != 0 {
        pipe.cmd("SELECT").arg(db);
    }
    add_scripts(&mut pipe);
    let values = connection.exchange(&pipe).await;
    let values = values.map_err(|no_reply| unreachable_error(place, no_reply.cause()))?;
    match values.iter().find_map(ServerError::of) {
        Some(error) => Err(error.into_connect_error(place)),
        None => Ok(()),
    }
}

/// Loads the scripts again, for a server that has lost them.
pub(super) async fn load_scripts(connection: &Connection) -> Result<(), String> {
    let mut pipe = Pipeline::new();
    add_scripts(&mut pipe);
    let values = connection.exchange(&pipe).await.map_err(NoReply::cause)?;
    match values.iter().find_map(ServerError::of) {
        Some(error) => Err(error.text().to_owned()),
        None => Ok(()),
    }
}

fn add_scripts(pipe: &mut Pipeline) {
    for script in scripts::ALL {
        pipe.add_command(script.load());
    }
}

/// Refuses a server that is too old, and turns off eviction.
pub(super) async fn check_server(place: &str, connection: &Connection) -> Result<()> {
    let mut pipe = Pipeline::new();
    pipe.cmd("INFO");
    let values = connection.exchange(&pipe).await;
    let values = values.map_err(|no_reply| unreachable_error(place, no_reply.cause()))?;
    let Some(value) = values.into_iter().next() else { return Ok(()) };
    if let Some(error) = ServerError::of(&value) {
        tracing::warn!(
            place,
            "cannot check the server's version and eviction policy: INFO failed: {}",
            error.text()
        );
        return Ok(());
    }
    let Ok(raw) = reply::bytes(value, "INFO") else {
        return Err(routing::not_redis(place, &connection.endpoint));
    };
    let raw = raw.unwrap_or_default();
    let text = String::from_utf8_lossy(&raw);
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    if let Some(version) = field("redis_version")
        && is_too_old(version)
    {
        let (major, minor) = OLDEST_VERSION;
        return Err(engine_error(
            place,
            format!("Redis {version} is older than {major}.{minor}, which this client needs"),
        ));
    }
    // A server with flash storage evicts to flash, and loses nothing.
    let policy = field("maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" && field("storage_provider") != Some("flash") {
        turn_off_eviction(place, connection, policy).await;
    }
    Ok(())
}

async fn turn_off_eviction(place: &str, connection: &Connection, policy: &str) {
    let mut pipe = Pipeline::new();
    pipe.cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg("noeviction");
    let failure = match connection.exchange(&pipe).await {
        Ok(values) => values.iter().find_map(ServerError::of).map(|error| error.text().to_owned()),
        Err(no_reply) => Some(no_reply.cause()),
    };
    match failure {
        None => tracing::info!(place, "changed the server's maxmemory-policy to noeviction"),
        Some(cause) => tracing::warn!(
            place,
            "the server may evict metadata: its maxmemory-policy is {policy}, \
             and changing it to noeviction failed: {cause}; set it on the server"
        ),
    }
}

fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST_VERSION,
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
