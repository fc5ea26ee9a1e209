//! TiKV servers for tests: on loopback, in memory, stopped when dropped. `tests/tikv-server/main.go`
//! documents what they implement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Start keys of the regions of a volume: some inodes have a region of their own, and so do the other
/// records. The last byte of an inode comes first in a key.
const SPLITS: [&[u8]; 8] = [b"A\x02", b"A\x03", b"A\x04", b"A\x06", b"A\x10", b"A\x40", b"C", b"K"];

/// A running server; dropping it stops it.
pub struct TikvServer {
    pd: String,
    control: String,
    program: Child,
    next: AtomicU32,
}

/// A fault of the next requests.
pub struct TikvFault<'a> {
    /// The method, such as `KvCommit`.
    pub on: &'a str,
    /// One of the faults in `tests/tikv-server/faults.go`.
    pub what: &'a str,
    pub times: u32,
    /// For faults that take time.
    pub delay: Duration,
}

impl TikvServer {
    /// Returns the server that all tests of this program share. [`TikvServer::fresh_url`] gives each
    /// test a volume of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TikvServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&["-stores", "3"]))
    }

    /// Starts a separate server, to count its requests or to break it.
    pub fn start(options: &[&str]) -> Self {
        let mut program = Command::new(binary())
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = program.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("its addresses");
        let word = |name: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {line:?}")).to_owned()
        };
        let (pd, control) = (word("PD="), word("CONTROL="));
        Self { pd, control, program, next: AtomicU32::new(0) }
    }

    /// Returns the URL of the volume with that prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("tikv://{}/{prefix}", self.pd)
    }

    /// Returns the URL of an empty volume.
    pub fn fresh_url(&self) -> String {
        self.url(&self.fresh_prefix())
    }

    /// Returns the URL of an empty volume in several regions, led by different stores.
    pub fn fresh_split_url(&self) -> String {
        let prefix = self.fresh_prefix();
        for key in SPLITS {
            self.ask(&format!("/split?key={}", hex(&full_key(&prefix, key))));
        }
        self.url(&prefix)
    }

    /// Injects a fault into the next requests for keys of the volume: `on` is the method, such as
    /// `KvCommit`; `what` is one of the faults in `tests/tikv-server/faults.go`.
    pub fn fail(&self, url: &str, on: &str, what: &str, times: u32) {
        self.fail_key(url, b"", on, what, times);
    }

    /// As [`TikvServer::fail`], for keys with this prefix.
    pub fn fail_key(&self, url: &str, key: &[u8], on: &str, what: &str, times: u32) {
        let delay = Duration::from_millis(300);
        self.inject(url, key, &TikvFault { on, what, times, delay });
    }

    /// As [`TikvServer::fail_key`], with a chosen delay.
    pub fn inject(&self, url: &str, key: &[u8], fault: &TikvFault<'_>) {
        let TikvFault { on, what, times, delay } = fault;
        let (key, ms) = (hex(&full_key(prefix_of(url), key)), delay.as_millis());
        self.ask(&format!("/fault?on={on}&what={what}&times={times}&key={key}&ms={ms}"));
    }

    /// Writes entries of a directory directly to the store; they have no nodes.
    pub fn fill(&self, url: &str, dir: u64, count: usize) {
        let entries = [b"A".as_slice(), &dir.to_le_bytes(), b"D"].concat();
        let key = hex(&full_key(prefix_of(url), &entries));
        self.ask(&format!("/fill?key={key}&count={count}"));
    }

    /// Moves the leader of the key's region to another store.
    pub fn move_leader(&self, url: &str, key: &[u8]) {
        self.ask(&format!("/lead?key={}", hex(&full_key(prefix_of(url), key))));
    }

    /// Splits the region at the key.
    pub fn split(&self, url: &str, key: &[u8]) {
        self.ask(&format!("/split?key={}", hex(&full_key(prefix_of(url), key))));
    }

    /// Returns the number of requests so far, by method; timestamp requests are `tso`.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        serde_json::from_str(&self.ask("/calls")).expect("counts")
    }

    /// Reads every pair of the volume, without its prefix, directly from the store. Waits for commits
    /// that have not released all of their locks.
    pub fn dump(&self, url: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let what = format!("/dump?key={}", hex(&full_key(prefix_of(url), b"")));
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let (head, body) = self.request(&what);
            if head.contains(" 200 ") {
                let pairs: Vec<(String, String)> = serde_json::from_str(&body).expect("pairs");
                return pairs.iter().map(|(key, value)| (unhex(key), unhex(value))).collect();
            }
            assert!(Instant::now() < deadline, "the volume stays locked: {body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn fresh_prefix(&self) -> String {
        format!("volume-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn ask(&self, what: &str) -> String {
        let (head, body) = self.request(what);
        assert!(head.contains(" 200 "), "TiKV server: {what}: {head} {body}");
        body
    }

    fn request(&self, what: &str) -> (String, String) {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.control)?;
            stream.set_read_timeout(Some(Duration::from_mins(5)))?;
            write!(stream, "GET {what} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().unwrap_or_else(|error| panic!("TiKV server: {what}: {error}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for TikvServer {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        let _ = self.program.wait();
    }
}

/// Returns the path of the server program, built on first use.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/tikv.sh");
        let built = Command::new(script).stderr(Stdio::inherit()).output().expect("a shell");
        assert!(built.status.success(), "tests/peers/tikv.sh failed");
        PathBuf::from(String::from_utf8(built.stdout).expect("a path").trim_end())
    })
}

fn prefix_of(url: &str) -> &str {
    url.rsplit_once('/').map_or("", |(_, prefix)| prefix)
}

fn full_key(prefix: &str, key: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), b"\xFD", key].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}
