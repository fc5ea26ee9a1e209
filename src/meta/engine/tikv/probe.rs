//! Why nobody answers: the library only says that nobody did.

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
/// For one server.
const EACH: Duration = Duration::from_secs(2);
/// A server that is content says something at once.
const WORD: Duration = Duration::from_millis(500);

/// What each server has against us, in a line.
pub(super) async fn explain(pds: &[String], tls: Option<&TlsFiles>) -> String {
    let mut reasons = Vec::with_capacity(pds.len());
    for pd in pds {
        let reason = match timeout(EACH, probe(pd, tls)).await {
            Ok(Ok(())) => "it is there, but does not answer as a PD server".to_owned(),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no answer within {} s", EACH.as_secs()),
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
    // What the server thinks of our certificate comes after the handshake.
    match timeout(WORD, stream.read(&mut [0])).await {
        Ok(Err(error)) => Err(refused(error)),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

fn connector(files: &TlsFiles) -> Result<TlsConnector, String> {
    let TlsFiles { ca, cert, key } = files.clone();
    let files =
        tls::TlsFiles { ca: Some(ca), cert: Some(cert), key: Some(key), skip_verify: false };
    // They were opened as the policy allows, and these are their descriptors.
    let config = files.config(OPTIONS, &Policy::unrestricted());
    let mut config = config.map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
