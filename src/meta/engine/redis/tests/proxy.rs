//! A proxy that forwards requests, and can lose answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const FORWARD: u8 = 0;
const CUT: u8 = 1;
const SWALLOW: u8 = 2;

pub struct Proxy {
    pub port: u16,
    mode: Arc<AtomicU8>,
}

impl Proxy {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(AtomicU8::new(FORWARD));
        tokio::spawn({
            let mode = mode.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { continue };
                    tokio::spawn(serve(client, server, mode.clone()));
                }
            }
        });
        Self { port, mode }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/1", self.port)
    }

    /// The next answer is thrown away and its connection closed; later ones are forwarded.
    pub fn cut_next_answer(&self) {
        self.mode.store(CUT, Ordering::SeqCst);
    }

    /// Answers are thrown away from now on, and connections stay open.
    pub fn swallow_answers(&self) {
        self.mode.store(SWALLOW, Ordering::SeqCst);
    }

    pub fn forward(&self) {
        self.mode.store(FORWARD, Ordering::SeqCst);
    }
}

async fn serve(client: TcpStream, server: TcpStream, mode: Arc<AtomicU8>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut buffer = vec![0; 65536];
    loop {
        let count = match from_server.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            _ => break,
        };
        match mode.load(Ordering::SeqCst) {
            CUT => {
                mode.store(FORWARD, Ordering::SeqCst);
                break;
            }
            SWALLOW => {}
            _ => {
                if to_client.write_all(&buffer[..count]).await.is_err() {
                    break;
                }
            }
        }
    }
    requests.abort();
}
