//! A tunnel through a proxy, opened by an HTTP `CONNECT` request.
//!
//! `hyper_util` has a `Tunnel` connector, but its errors omit the status of a refused request, such
//! as 403, which users need to fix their proxy settings, and it has no timeout.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Time for a proxy to connect, as in the Go client.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Longer than any valid response of a proxy.
const MAX_RESPONSE: usize = 64 << 10;

/// Requests a tunnel to `target`, a host with its port, from the proxy at the other end of
/// `stream`.
pub async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &str,
    authorization: Option<&HeaderValue>,
) -> Result<(), String> {
    let answer = tokio::time::timeout(TIMEOUT, ask(stream, target, authorization)).await;
    let status = answer.map_err(|_| format!("no response within {TIMEOUT:?}"))??;
    match status {
        StatusCode::OK => Ok(()),
        refused => Err(format!("no tunnel to {target}: {refused}")),
    }
}

async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &str,
    authorization: Option<&HeaderValue>,
) -> Result<StatusCode, String> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(|error| error.to_string())?;

    let mut answer = Vec::new();
    while answer.len() < MAX_RESPONSE {
        let mut piece = [0; 1024];
        match stream.read(&mut piece).await {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(size) => answer.extend_from_slice(&piece[..size]),
            Err(error) => return Err(error.to_string()),
        }
        match status(&answer)? {
            // A TLS server waits for the client to begin, so nothing follows the response.
            Some(StatusCode::OK) if answer.ends_with(b"\r\n\r\n") => return Ok(StatusCode::OK),
            // A refusal may have a body, which is not needed.
            Some(refused) if refused != StatusCode::OK => return Ok(refused),
            _ => {}
        }
    }
    Err("its response does not end".to_owned())
}

/// Returns the status of a response such as `HTTP/1.1 200 Connection established`, once its first
/// line is complete.
fn status(answer: &[u8]) -> Result<Option<StatusCode>, String> {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let Some(end) = answer.windows(2).position(|two| two == b"\r\n") else {
        let is_http = answer.iter().zip(BEGINNING).all(|(found, wanted)| found == wanted);
        return is_http.then_some(None).ok_or_else(not_http);
    };
    let line = answer[..end].strip_prefix(BEGINNING).ok_or_else(not_http)?;
    let code = line.split(|byte| *byte == b' ').nth(1).ok_or_else(not_http)?;
    StatusCode::from_bytes(code).map(Some).map_err(|_| not_http())
}

fn not_http() -> String {
    "it does not speak HTTP".to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Requests a tunnel from a proxy that sends these pieces and closes the connection. Returns
    /// the outcome and the request.
    async fn asked(pieces: &[&[u8]], authorization: Option<&str>) -> (Result<(), String>, String) {
        let (mut near, mut far) = duplex(1 << 20);
        let authorization = authorization.map(|value| HeaderValue::from_str(value).unwrap());
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let proxy = tokio::spawn(async move {
            let mut request = [0; 4096];
            let size = far.read(&mut request).await.unwrap();
            for piece in pieces {
                far.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            String::from_utf8(request[..size].to_vec()).unwrap()
        });
        let outcome = open(&mut near, "vol.test:443", authorization.as_ref()).await;
        (outcome, proxy.await.unwrap())
    }

    #[tokio::test]
    async fn the_request_names_host_and_port() {
        let whole = b"HTTP/1.1 200 Connection established\r\n\r\n";
        let (outcome, request) = asked(&[whole], None).await;
        outcome.unwrap();
        assert_eq!(request, "CONNECT vol.test:443 HTTP/1.1\r\nHost: vol.test:443\r\n\r\n");
        let (outcome, request) = asked(&[whole], Some("Basic eDp5")).await;
        outcome.unwrap();
        assert!(request.ends_with("\r\nProxy-Authorization: Basic eDp5\r\n\r\n"), "{request}");
    }

    #[tokio::test]
    async fn a_response_may_arrive_in_pieces_and_have_headers() {
        let pieces: [&[u8]; 4] = [b"HTTP/1", b".0 200 OK\r", b"\nVia: x\r\n", b"\r\n"];
        asked(&pieces, None).await.0.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_tunnel_is_reported() {
        let endless = vec![b'x'; MAX_RESPONSE];
        for (pieces, why) in [
            (&[&b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\n<html>"[..]][..], "403 Forbidden"),
            (&[b"HTTP/1.1 407 Show yourself\r\n"], "407 Proxy Authentication Required"),
            (&[b"HTTP/1.1 200 OK\r\nVia: x\r\n"], "it closed the connection"),
            (&[], "it closed the connection"),
            (&[b"SSH-2.0-OpenSSH"], "it does not speak HTTP"),
            (&[b"HTTP/1.1 yes\r\n\r\n"], "it does not speak HTTP"),
            (&[b"HTTP/1.1 200 OK\r\n", &endless], "its response does not end"),
        ] {
            let told = asked(pieces, None).await.0.unwrap_err();
            assert!(told.ends_with(why), "{told}, not {why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_proxy_times_out() {
        let (mut near, _far) = duplex(1024);
        let told = open(&mut near, "vol.test:443", None).await.unwrap_err();
        assert_eq!(told, "no response within 60s");
    }
}
