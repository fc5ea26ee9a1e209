//! The yardstick is straight: the Go client compared with itself.
//!
//! The same script on two fresh volumes gives equal normalised dumps, keyspaces and tables, though
//! the ids differ; a script that differs in one thing does not. What is compared here with the Go
//! client on both sides is later compared with ours on one.
#![cfg(test)]

mod support;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use support::command::{kill_group, poll, run};
use support::juicefs::Volume;
use support::normalise::{assert_same, diff, dump, keyspace, tables};
use support::timeout::{MOUNTED, within};
use tempfile::TempDir;

/// One of everything that a mount can be asked for and whose outcome does not hang on timing. Each
/// file is written by one call, since a slow machine could end a slice between two.
fn script(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("dir/sub/deep")).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("dir/small"), "hello").unwrap();
    fs::write(at("dir/large"), vec![7; 100_000]).unwrap();

    // Overwritten in the middle, cut, and grown again.
    let file = OpenOptions::new().write(true).open(at("dir/large")).unwrap();
    file.write_at(b"patch", 50_000).unwrap();
    file.sync_all().unwrap();
    file.set_len(60_000).unwrap();
    file.set_len(80_000).unwrap();
    drop(file);

    // Two chunks, mostly hole.
    let mut sparse = File::create(at("sparse")).unwrap();
    sparse.seek(SeekFrom::Start((64 << 20) + 10)).unwrap();
    sparse.write_all(b"end").unwrap();
    drop(sparse);

    fs::hard_link(at("dir/small"), at("dir/sub/linked")).unwrap();
    symlink("dir/small", at("short")).unwrap();
    mkfifo(&at("pipe"));
    fs::set_permissions(at("dir/sub"), Permissions::from_mode(0o2750)).unwrap();
    chown(at("dir/large"), Some(1000), Some(2000)).unwrap();
    let past = UNIX_EPOCH + Duration::from_nanos(1_000_000_000_123_456_789);
    let times = fs::FileTimes::new().set_accessed(past).set_modified(past);
    File::open(at("dir/small")).unwrap().set_times(times).unwrap();

    fs::write(at("dir/gone"), "trash me").unwrap();
    fs::remove_file(at("dir/gone")).unwrap();
    fs::create_dir(at("dir/gone-dir")).unwrap();
    fs::remove_dir(at("dir/gone-dir")).unwrap();
    fs::write(at("dir/new"), "moved over").unwrap();
    fs::write(at("dir/old"), "replaced").unwrap();
    fs::rename(at("dir/new"), at("dir/old")).unwrap();
    fs::rename(at("dir/sub/deep"), at("moved")).unwrap();
}

fn mkfifo(path: &Path) {
    let mut command = Command::new("mkfifo");
    command.arg(path);
    run(command, Duration::from_secs(10)).ok();
}

/// A change to the outcome of the script, and a word of the difference it must show as.
type Twist = (&'static str, fn(&Path), &'static str);

const TWISTS: &[Twist] = &[
    (
        "another mode",
        |root| fs::set_permissions(root.join("empty"), Permissions::from_mode(0o600)).unwrap(),
        "mode",
    ),
    ("another owner", |root| chown(root.join("empty"), Some(7), None).unwrap(), "uid"),
    (
        "one more byte",
        |root| {
            let mut file = OpenOptions::new().append(true).open(root.join("dir/old")).unwrap();
            file.write_all(b"!").unwrap();
        },
        "length",
    ),
    (
        "other bytes over the same range",
        |root| {
            let file = OpenOptions::new().write(true).open(root.join("dir/old")).unwrap();
            file.write_at(b"M", 0).unwrap();
        },
        "slice",
    ),
    (
        "another link",
        |root| fs::hard_link(root.join("dir/small"), root.join("third")).unwrap(),
        "third",
    ),
    (
        "another target",
        |root| {
            fs::remove_file(root.join("short")).unwrap();
            symlink("dir/large", root.join("short")).unwrap();
        },
        "dir/large",
    ),
    ("another name", |root| fs::rename(root.join("moved"), root.join("moved2")).unwrap(), "moved2"),
    (
        "another file in the trash",
        |root| {
            fs::write(root.join("brief"), "").unwrap();
            fs::remove_file(root.join("brief")).unwrap();
        },
        "brief",
    ),
];

/// Everything about a volume that is compared.
struct Picture {
    dump: Value,
    store: Value,
}

impl Picture {
    fn differences(&self, other: &Self) -> (Vec<String>, Vec<String>) {
        (diff(&self.dump, &other.dump), diff(&self.store, &other.store))
    }
}

/// Formats, moves the id counters on by `burn`, runs the script and `then`, unmounts.
fn volume(engine: &dyn Engine, burn: u32, then: fn(&Path)) -> Picture {
    let volume = Volume::format(&engine.url(), &["--trash-days", "1"]);
    engine.burn_ids(burn);
    let mount = volume.mount(&[]);
    script(mount.path());
    then(mount.path());
    mount.unmount();
    volume.fsck();
    Picture { dump: dump::normalise(&volume.dump()), store: engine.normalised() }
}

trait Engine {
    fn url(&self) -> String;
    /// Takes ids away, as another client would.
    fn burn_ids(&self, count: u32);
    fn normalised(&self) -> Value;
}

struct Sqlite(TempDir);

impl Sqlite {
    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("meta.db")
    }
}

impl Engine for Sqlite {
    fn url(&self) -> String {
        format!("sqlite3://{}", self.file().display())
    }

    fn burn_ids(&self, count: u32) {
        let db = rusqlite::Connection::open(self.file()).unwrap();
        let update =
            "UPDATE jfs_counter SET value = value + ?1 WHERE name IN ('nextInode', 'nextChunk')";
        assert_eq!(db.execute(update, [count]).unwrap(), 2);
    }

    fn normalised(&self) -> Value {
        tables::normalise(&tables::read(&self.file()))
    }
}

/// A server of this test's own.
struct Redis {
    server: Child,
    port: u16,
    _folder: TempDir,
}

impl Redis {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.arg("--dir").arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let server =
            command.spawn().expect("redis-server is missing: apt-get install redis-server");
        let up = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(poll(Duration::from_secs(10), up), "redis-server does not answer");
        Self { server, port, _folder: folder }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        kill_group(&mut self.server);
    }
}

struct Database<'a>(&'a Redis, u8);

impl Engine for Database<'_> {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/{}", self.0.port, self.1)
    }

    fn burn_ids(&self, count: u32) {
        let mut server = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        for counter in ["nextinode", "nextchunk"] {
            redis::cmd("INCRBY").arg(counter).arg(count).exec(&mut server).unwrap();
        }
    }

    fn normalised(&self) -> Value {
        keyspace::normalise(&keyspace::read(&self.url()))
    }
}

fn nothing(_: &Path) {}

#[test]
fn the_same_script_gives_the_same_volume_on_redis_and_sqlite() {
    within(MOUNTED, || {
        let redis = Redis::start();
        let one = volume(&Database(&redis, 0), 0, nothing);
        let two = volume(&Database(&redis, 1), 5000, nothing);
        assert_same(&one.dump, &two.dump);
        assert_same(&one.store, &two.store);

        let three = volume(&Sqlite(TempDir::new().unwrap()), 0, nothing);
        let four = volume(&Sqlite(TempDir::new().unwrap()), 5000, nothing);
        assert_same(&three.dump, &four.dump);
        assert_same(&three.store, &four.store);

        // A dump does not tell which engine it came from.
        assert_same(&one.dump, &three.dump);
    });
}

#[test]
fn a_script_that_differs_in_one_thing_gives_another_volume_on_redis() {
    within(2 * MOUNTED, || {
        let redis = Redis::start();
        let plain = volume(&Database(&redis, 0), 0, nothing);
        for ((what, twist, word), db) in TWISTS.iter().zip(1..) {
            expect_difference(&plain, &volume(&Database(&redis, db), 0, *twist), what, word);
        }
    });
}

#[test]
fn a_script_that_differs_in_one_thing_gives_another_volume_on_sqlite() {
    within(2 * MOUNTED, || {
        let plain = volume(&Sqlite(TempDir::new().unwrap()), 0, nothing);
        for (what, twist, word) in TWISTS {
            let twisted = volume(&Sqlite(TempDir::new().unwrap()), 0, *twist);
            expect_difference(&plain, &twisted, what, word);
        }
    });
}

fn expect_difference(plain: &Picture, twisted: &Picture, what: &str, word: &str) {
    let (dumps, stores) = plain.differences(twisted);
    for differences in [dumps, stores] {
        let named = differences.iter().any(|line| line.contains(word));
        assert!(named, "{what}: no difference names {word:?} in {differences:#?}");
    }
}
