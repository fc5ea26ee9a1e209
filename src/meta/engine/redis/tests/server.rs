//! Redis servers of the tests' own: free port, temporary directory, killed when dropped.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::FromRedisValue;
use tempfile::TempDir;

use super::super::{RedisEngine, connect};

pub struct Server {
    child: Child,
    pub dir: TempDir,
    pub port: u16,
    args: Vec<String>,
    password: Option<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let password = args
            .iter()
            .position(|arg| arg == "--requirepass")
            .and_then(|at| args.get(at + 1).cloned());
        let child = spawn(dir.path(), port, &args);
        let server = Self { child, dir, port, args, password };
        server.wait();
        server
    }

    /// A server that keeps what it has over a restart.
    pub fn start_durable() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.child = spawn(self.dir.path(), self.port, &self.args);
        self.wait();
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/1", self.port)
    }

    pub async fn engine(&self) -> RedisEngine {
        connect(&self.url(), &|_| None).await.unwrap()
    }

    /// Runs a command in database 1 (0 in a cluster, which has no other).
    pub fn run<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.run_raw(&args)
    }

    pub fn run_raw<T: FromRedisValue>(&self, args: &[&[u8]]) -> T {
        let db = i32::from(!self.args.iter().any(|arg| arg == "--cluster-enabled"));
        let login = self.password.as_ref().map(|pw| format!(":{pw}@")).unwrap_or_default();
        let url = format!("redis://{login}127.0.0.1:{}/{db}", self.port);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut cmd = redis::Cmd::new();
        for arg in args {
            cmd.arg(*arg);
        }
        cmd.query(&mut connection).unwrap()
    }

    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    fn wait(&self) {
        wait_for_pong(self.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn spawn(dir: &Path, port: u16, args: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .args(["--dir", dir.to_str().unwrap(), "--logfile", "redis.log"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is needed: apt-get install redis-server")
}

pub fn wait_for_pong(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let mut answer = [0; 5];
            let _ = stream.write_all(b"PING\r\n");
            if stream.read_exact(&mut answer).is_ok() && matches!(&answer, b"+PONG" | b"-NOAU") {
                return;
            }
        }
        assert!(Instant::now() < deadline, "redis-server on port {port} does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}
