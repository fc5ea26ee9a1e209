//! Finding out why no PD server responds: the library only reports that none did.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::TlsFiles;
use crate::policy::Policy;
use crate::tls::{self, OptionNames};

const OPTIONS: OptionNames = OptionNames { ca: "ca", cert: "cert", key: "key" };
/// Time for one server.
const EACH_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that accepts the certificate sends its first bytes at once.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_millis(500);

/// Connects to each server and returns what went wrong, in one line.
pub(super) async fn diagnose(pds: &[String], tls: Option<&TlsFiles>) -> String {
    let mut reasons = Vec::with_capacity(pds.len());
    for pd in pds {
        let reason = match timeout(EACH_TIMEOUT, probe(pd, tls)).await {
            Ok(Ok(())) => "reachable, but does not respond like a PD server".to_owned(),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no response within {} s", EACH_TIMEOUT.as_secs()),
        };
        reasons.push(format!("{pd}: {reason}"));
    }
    reasons.join("; ")
}

async fn probe(pd: &str, tls: Option<&TlsFiles>) -> Result<(), String> {
    let socket = TcpStream::connect(pd).await.map_err(|error| error.to_string())?;
    let Some(files) = tls else { return Ok(()) };
    let host = pd.rsplit_once(':').map_or(pd, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let refused = |error: std::io::Error| format!("TLS: {error}");
    let mut stream = connector(files)?.connect(name, socket).await.map_err(refused)?;
    // The server reports a rejected client certificate only after the handshake.
    match timeout(FIRST_BYTE_TIMEOUT, stream.read(&mut [0])).await {
        Ok(Err(error)) => Err(refused(error)),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

fn connector(files: &TlsFiles) -> Result<TlsConnector, String> {
    let TlsFiles { ca, cert, key } = files.clone();
    let files =
        tls::TlsFiles { ca: Some(ca), cert: Some(cert), key: Some(key), skip_verify: false };
    // The paths are descriptors of files that were opened as the policy allows.
    let config = files.config(OPTIONS, &Policy::unrestricted());
    let mut config = config.map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
