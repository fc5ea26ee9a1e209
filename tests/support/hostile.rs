//! Malicious servers: they announce huge responses, or send endless ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A malicious response.
#[derive(Debug, Clone)]
pub enum Harm {
    /// These bytes, then nothing.
    Say(Vec<u8>),
    /// `first`, and then `then` for ever.
    Endless { first: Vec<u8>, then: Vec<u8> },
}

/// A server on loopback, until the test process exits.
pub struct Hostile {
    pub address: SocketAddr,
    sent: Arc<AtomicU64>,
    hangs_up: Arc<AtomicBool>,
}

impl Hostile {
    /// Starts a server; `harm` gets the first line of each request and returns the response.
    pub fn start(harm: impl Fn(&str) -> Harm + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (harm, sent) = (Arc::new(harm), Arc::new(AtomicU64::new(0)));
        let (counter, hangs_up) = (Arc::clone(&sent), Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&hangs_up);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (harm, sent) = (Arc::clone(&harm), Arc::clone(&counter));
                let ends = Arc::clone(&ends);
                thread::spawn(move || serve(&stream, harm.as_ref(), &sent, &ends));
            }
        });
        Self { address, sent, hangs_up }
    }

    /// Starts an object store that accepts every request and responds to GET with `get`.
    pub fn store(get: Harm) -> Self {
        Self::start(move |line| if line.starts_with("GET ") { get.clone() } else { nothing() })
    }

    /// From now on closes each connection after its first response.
    pub fn hang_up(&self) {
        self.hangs_up.store(true, Ordering::SeqCst);
    }

    /// Returns the bytes sent to clients.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

/// A response without a body.
pub fn nothing() -> Harm {
    Harm::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
}

/// The head of a response with a chunked body.
pub fn chunked(status: u16, before: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} So\r\nTransfer-Encoding: chunked\r\n\r\n");
    format!("{head}{:x}\r\n{before}\r\n", before.len()).into_bytes()
}

/// One chunk of such a body.
pub fn chunk(piece: &str) -> Vec<u8> {
    format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes()
}

/// A complete response.
pub fn whole(body: &str) -> Harm {
    Harm::Say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into())
}

/// Announces ten terabytes and sends little.
pub fn ten_terabytes() -> Harm {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000000\r\n\r\n";
    Harm::Say([head, &[b'x'; 1000][..]].concat())
}

fn serve(stream: &TcpStream, harm: &dyn Fn(&str) -> Harm, sent: &AtomicU64, ends: &AtomicBool) {
    stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(line) = request(&mut reader) {
        let written = match harm(&line) {
            Harm::Say(bytes) => send(stream, &bytes, sent),
            Harm::Endless { first, then } => {
                let many = then.repeat((64 << 10) / then.len() + 1);
                send(stream, &first, sent);
                while send(stream, &many, sent) {}
                false
            }
        };
        if !written || ends.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn send(mut stream: &TcpStream, bytes: &[u8], sent: &AtomicU64) -> bool {
    let done = stream.write_all(bytes).is_ok();
    sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
    done
}

/// Reads a request, with its headers and body, and returns its first line. If it is not HTTP, each line
/// is a request.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<String> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    if !first.contains(" HTTP/1.") {
        return Some(first);
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(first)
}
