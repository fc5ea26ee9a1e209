//! A server that the tests let a keeper supervise: this test program, run again.
//!
//! It does what the file `BEHAVIOUR-NAME` in its folder says, where `NAME` is the name it was run by, and
//! writes what happens into the file `events` there.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::{Duration, Instant};

use jfs::keeper::supervise::SOCKET_VARIABLE;
use jfs::keeper::{KeeperClient, KeeperEvent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::fixture::{content, memory};

pub const FOLDER_VARIABLE: &str = "JFS_FAKE_SERVER";
/// The arguments that run the server.
pub const WORDS: [&str; 4] = ["--ignored", "--exact", "fake_server::serve", "--nocapture"];
/// Ends by itself, should its keeper be gone.
const LIFETIME: Duration = Duration::from_mins(2);

/// Says what the server of a name is to do.
pub fn behave(folder: &Path, name: &str, behaviour: &str) {
    // Never read half.
    let part = folder.join(format!("part-{name}"));
    std::fs::write(&part, behaviour).unwrap();
    std::fs::rename(part, folder.join(format!("behaviour-{name}"))).unwrap();
}

/// A keeper of the same file as its server.
#[test]
#[ignore = "the keeper of another test"]
fn keep() {
    let words: Vec<_> = std::env::args_os().collect();
    let own = words.iter().position(|word| word == "--").unwrap() + 1;
    exit(i32::from(jfs::keeper::run::main(&words, own, jfs::keeper::supervise::plain)));
}

struct Server {
    folder: PathBuf,
    name: String,
}

impl Server {
    fn behaviour(&self) -> String {
        std::fs::read_to_string(self.folder.join(format!("behaviour-{}", self.name))).unwrap()
    }

    fn note(&self, text: &str) {
        let path = self.folder.join("events");
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        let line = format!("{} {} {text}\n", self.name, std::process::id());
        file.write_all(line.as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "the server of other tests"]
fn serve() {
    let folder = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from).unwrap();
    let words: Vec<_> = std::env::args_os().collect();
    let name = Path::new(&words[0]).file_name().unwrap().to_str().unwrap().to_owned();
    let server = Server { folder, name };
    server.note("started");
    let socket = PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap());
    if server.behaviour() == "die" {
        exit(7);
    }
    if server.behaviour() == "crash" {
        kill(Pid::this(), Signal::SIGKILL).unwrap();
    }
    let (keeper, mut events) = KeeperClient::connect(&socket, &server.name).unwrap();
    if server.behaviour() == "decline" {
        keeper.decline("no store can be opened").unwrap();
    }
    if server.behaviour() == "leave" {
        drop(keeper);
        std::thread::sleep(LIFETIME);
        exit(8);
    }
    if server.behaviour() != "decline" {
        keeper.ask(false).unwrap();
    }
    let end = Instant::now() + LIFETIME;
    while Instant::now() < end {
        match server.behaviour().as_str() {
            "exit" => exit(0),
            "fail" => exit(9),
            _ => {}
        }
        match events.try_recv() {
            Ok(KeeperEvent::Yours) if server.behaviour() == "mount nothing" => exit(12),
            Ok(KeeperEvent::Yours) => {
                if keeper.get("mount").unwrap().is_none() {
                    let text = format!("mounted by {}", std::process::id());
                    keeper.put("mount", &[memory(&text).as_fd()]).unwrap();
                }
                let held = keeper.get("mount").unwrap().unwrap();
                server.note(&format!("serves what was {}", content(&held[0])));
            }
            Ok(KeeperEvent::Yield) if server.behaviour() == "spare" => {
                keeper.yielded().unwrap();
                keeper.ask(true).unwrap();
            }
            Ok(KeeperEvent::Yield) => {
                keeper.yielded().unwrap();
                server.note("yielded");
                exit(0);
            }
            Ok(KeeperEvent::Lost) => exit(10),
            Ok(KeeperEvent::Refused) | Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    exit(11);
}
