//! Redis servers for tests: on loopback, without persistence, stopped when dropped.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Databases of one server: at most this many tests of one program can have their own.
const DATABASES: u32 = 1024;
/// A server starts within milliseconds; a loaded machine may take much longer.
const START_LIMIT: Duration = Duration::from_secs(20);
/// A free port may be taken before the server binds it.
const PORTS_TRIED: usize = 5;

/// A script that stops the server and removes its folder at the end of its input, which comes however
/// this program ends. Starts another server with the same folder whenever it reads a line.
const KEEPER: &str = r#"
    start() {
        redis-server --port "$1" --dir "$2" --databases "$3" \
            --bind 127.0.0.1 --save "" --appendonly no --maxmemory-policy noeviction \
            >"$2/log" 2>&1 </dev/null &
        server=$!
    }
    start "$@"
    while read -r _; do
        wait "$server"
        start "$@"
    done
    kill "$server"
    # One that was paused ends only when it goes on.
    kill -CONT "$server"
    wait "$server"
    rm -rf "$2"
"#;

/// A running server; dropping it stops it.
pub struct RedisServer {
    port: u16,
    keeper: Child,
    next: AtomicU32,
    dir: TempDir,
}

impl RedisServer {
    /// Returns the server that all tests of this program share. [`RedisServer::fresh_url`] gives each
    /// test a database of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a separate server, to stop, to fill or to configure it.
    pub fn start() -> Self {
        for _ in 0..PORTS_TRIED {
            if let Some(server) = Self::start_on(free_port()) {
                return server;
            }
        }
        panic!("redis-server does not start: is it installed (apt-get install redis-server)?")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of one database.
    pub fn url(&self, database: u32) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the URL of a database that was never handed out, so it is empty.
    pub fn fresh_url(&self) -> String {
        let database = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(database < DATABASES, "all {DATABASES} databases of the server are taken");
        self.url(database)
    }

    /// Sends one command and returns the reply.
    pub fn ask(&self, command: &str) -> String {
        ask(self.port, command).unwrap_or_else(|error| panic!("redis: {command}: {error}"))
    }

    /// Stops the server; its data is back after [`RedisServer::restart`].
    pub fn stop(&self) {
        // The server closes the connection instead of replying.
        let _ = ask(self.port, "SHUTDOWN SAVE");
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            assert!(Instant::now() < deadline, "redis does not stop");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the server again after [`RedisServer::stop`].
    pub fn restart(&mut self) {
        let orders = self.keeper.stdin.as_mut().expect("the keeper listens");
        orders.write_all(b"start\n").expect("the keeper listens");
        assert!(self.is_up(), "redis does not start again");
    }

    /// Returns the PID of the server.
    pub fn pid(&self) -> u32 {
        let told = self.ask("INFO server");
        let pid = told.lines().find_map(|line| line.strip_prefix("process_id:"));
        pid.and_then(|pid| pid.trim().parse().ok()).expect("a process id")
    }

    fn start_on(port: u16) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", &port.to_string()])
            .arg(dir.path())
            .arg(DATABASES.to_string())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let server = Self { port, keeper, next: AtomicU32::new(0), dir };
        server.is_up().then_some(server)
    }

    /// Returns whether the server responds. Another program may have the port, so the server must
    /// report the expected folder.
    fn is_up(&self) -> bool {
        let folder = self.dir.path().to_string_lossy().into_owned();
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            match ask(self.port, "CONFIG GET dir") {
                Ok(answer) if !answer.is_empty() => return answer.contains(&folder),
                _ => thread::sleep(Duration::from_millis(10)),
            }
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            if log.contains("Address already in use") || log.contains("not found") {
                return false;
            }
        }
        false
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn ask(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(command.as_bytes())?;
    // The server replies in order and closes the connection on QUIT, so this ends.
    stream.write_all(b"\r\nQUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
