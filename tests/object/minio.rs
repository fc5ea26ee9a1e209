//! A `minio` server for tests, on loopback, with its objects in a temporary directory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use jfs::object::Spec;
use jfs::secret::Secret;
use tempfile::TempDir;

use crate::support::command::run;

/// The first test on a machine builds the server.
const BUILD: Duration = Duration::from_mins(30);
const START_LIMIT: Duration = Duration::from_mins(1);
const USER: &str = "test-user";
const PASSWORD: &str = "test-password";

/// A script that stops the server and removes its directory when its standard input is closed, which
/// happens however this program ends.
///
/// This fork stores its objects in a fixed directory, so each server gets a mount of its own there.
const SUPERVISOR: &str = r#"
    mkdir -p "$3/data" /tmp/fakeEndpoint
    unshare --mount sh -c '
        mount --bind "$3/data" /tmp/fakeEndpoint &&
        exec "$1" server --quiet --address "127.0.0.1:$2" "$3/data"
    ' sh "$@" >"$3/log" 2>&1 </dev/null &
    server=$!
    read -r _
    kill "$server"
    wait "$server"
    rm -rf "$3"
"#;

pub struct MinioServer {
    port: u16,
    /// Its standard input closes when this program ends.
    _supervisor: Child,
    _dir: TempDir,
}

impl MinioServer {
    /// Returns the server that all tests of this program share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MinioServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Returns the spec of a bucket, which does not exist yet.
    pub fn spec(&self, bucket: &str) -> Spec {
        let mut spec = Spec::new("minio", &format!("http://127.0.0.1:{}/{bucket}", self.port));
        (spec.access_key, spec.secret_key) = (USER.to_owned(), Secret::new(PASSWORD));
        spec.retries = 0;
        spec
    }

    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/minio.sh");
        let built = run(Command::new(script), BUILD).ok().stdout;
        let dir = tempfile::tempdir().expect("a temporary folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh", built.trim_end(), &port.to_string()])
            .arg(dir.path())
            .env("MINIO_ROOT_USER", USER)
            .env("MINIO_ROOT_PASSWORD", PASSWORD)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let begun = Instant::now();
        while !is_up(port) {
            let log = dir.path().join("log");
            assert!(
                begun.elapsed() < START_LIMIT,
                "minio does not start; it says:\n{}",
                std::fs::read_to_string(log).unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(50));
        }
        Self { port, _supervisor: supervisor, _dir: dir }
    }
}

/// Whether the server is up.
fn is_up(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(
            b"GET /minio/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
