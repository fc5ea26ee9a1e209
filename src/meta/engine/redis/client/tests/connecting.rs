//! Passwords, sockets, TLS, clusters and sentinels.

use std::path::Path;
use std::process::Command;

use super::super::super::connect;
use super::super::super::tests::fixtures::{Server, free_port, wait_for_pong};
use super::*;
use crate::error::Error;

async fn assert_works(engine: &RedisEngine) {
    put(engine, &[Change::PutAttr(Ino(5), file())]).await;
    put(engine, &[Change::PutEntry(Ino(1), name("a"), entry(5))]).await;
    let found = read_one(engine, Key::Lookup(Ino(1), name("a"))).await;
    let Record::Lookup(Some(found)) = found else { panic!("{found:?}") };
    assert_eq!(found.attr, Some(file()));
}

async fn connect_error(url: &str) -> Error {
    connect(url, &|_| None).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn the_right_password_works_and_the_error_names_a_wrong_or_missing_one() {
    let server = Server::start_with(&["--requirepass", "topsecret"]);
    let at = format!("127.0.0.1:{}/1", server.port);
    assert_works(&connect(&format!("redis://:topsecret@{at}"), &|_| None).await.unwrap()).await;
    let env = |name: &str| (name == "REDIS_PASSWORD").then(|| "topsecret".to_owned());
    assert_works(&connect(&format!("redis://{at}"), &env).await.unwrap()).await;

    let wrong = connect_error(&format!("redis://:wrongsecret@{at}")).await;
    assert!(matches!(&wrong, Error::Engine { .. }), "{wrong}");
    let text = wrong.to_string();
    assert!(text.contains("WRONGPASS") && text.contains(&at), "{text}");
    assert!(!text.contains("wrongsecret"), "{text}");

    let missing = connect_error(&format!("redis://{at}")).await;
    assert!(matches!(&missing, Error::Engine { .. }), "{missing}");
    assert!(missing.to_string().contains("password"), "{missing}");
}

#[tokio::test]
async fn a_user_of_the_access_control_list_can_log_in() {
    let server = Server::start_with(&["--user", "me", "on", ">pw", "~*", "+@all"]);
    let url = format!("redis://me:pw@127.0.0.1:{}/1", server.port);
    assert_works(&connect(&url, &|_| None).await.unwrap()).await;
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_an_error() {
    let server = Server::start();
    let error = connect_error(&format!("redis://127.0.0.1:{}/99", server.port)).await;
    assert!(matches!(&error, Error::Engine { .. }), "{error}");
    assert!(error.to_string().contains("DB index"), "{error}");
}

#[tokio::test]
async fn databases_are_separate() {
    let server = Server::start();
    assert_works(&server.engine().await).await;
    let other = connect(&format!("redis://127.0.0.1:{}/2", server.port), &|_| None).await.unwrap();
    assert_eq!(read_one(&other, Key::Attr(Ino(5))).await, Record::Attr(None));
}

#[tokio::test]
async fn a_unix_socket_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    let _server = Server::start_with(&["--unixsocket", path.to_str().unwrap()]);
    let url = format!("unix://{}?db=1", path.display());
    assert_works(&connect(&url, &|_| None).await.unwrap()).await;
    let error = connect_error("unix:///nonexistent/redis.sock").await;
    assert!(error.to_string().contains("/nonexistent/redis.sock"), "{error}");
}

#[tokio::test]
async fn tls_verifies_the_server_and_can_present_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    make_certificates(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let port = free_port().to_string();
    let _server = Server::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "yes",
    ]);
    let at = format!("rediss://127.0.0.1:{port}/1");
    let client =
        format!("tls-cert-file={}&tls-key-file={}", file("client.pem"), file("client.key"));
    let ca = format!("tls-ca-cert-file={}", file("ca.pem"));

    // The certificate is for redis.test, not for the address.
    let named = format!("{at}?{ca}&{client}&tls-server-name=redis.test");
    assert_works(&connect(&named, &|_| None).await.unwrap()).await;
    let trusting = format!("{at}?{client}&insecure-skip-verify=true");
    assert_works(&connect(&trusting, &|_| None).await.unwrap()).await;

    let misnamed = connect_error(&format!("{at}?{ca}&{client}")).await;
    assert!(misnamed.to_string().contains("TLS"), "{misnamed}");
    let untrusted = connect_error(&format!("{at}?{client}&tls-server-name=redis.test")).await;
    assert!(untrusted.to_string().contains("TLS"), "{untrusted}");
    let anonymous = connect_error(&format!("{at}?{ca}&tls-server-name=redis.test")).await;
    assert!(matches!(anonymous, Error::Unreachable { .. }), "{anonymous}");
    let missing = connect_error(&format!("{at}?tls-ca-cert-file=/nonexistent/ca.pem")).await;
    assert!(matches!(&missing, Error::BadInput(_)), "{missing}");
    assert!(missing.to_string().contains("/nonexistent/ca.pem"), "{missing}");
}

fn make_certificates(dir: &Path) {
    std::fs::write(dir.join("san.cnf"), "subjectAltName=DNS:redis.test").unwrap();
    let script = "set -e
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
        for who in server client; do
            openssl req -newkey rsa:2048 -nodes -subj /CN=$who -keyout $who.key -out $who.csr
            openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                -extfile san.cnf -out $who.pem
        done";
    let output = Command::new("sh").args(["-c", script]).current_dir(dir).output();
    let output = output.expect("openssl is needed: apt-get install openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_single_cluster_node_is_recognized_and_keys_get_the_prefix() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    server.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let ready = || server.run::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    while !ready() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let engine = connect(&server.url(), &|_| None).await.unwrap();
    assert_works(&engine).await;
    assert_eq!(server.keys(), ["{1}d1", "{1}i5"]);
    // Other operations use no key of another slot either.
    engine.store_setting(b"{}", &file(), Some(&file())).await.unwrap();
    engine.put_session(crate::meta::Sid(1), 5, b"{}").await.unwrap();
    assert_eq!(engine.stale_sessions(10, 10).await.unwrap(), [crate::meta::Sid(1)]);
    engine.remove_session(crate::meta::Sid(1)).await.unwrap();
    assert!(engine.session(crate::meta::Sid(1)).await.unwrap().is_none());

    let several = format!("redis://127.0.0.1:{0},127.0.0.1:{0}/1", server.port);
    let engine = connect(&several, &|_| None).await.unwrap();
    assert_eq!(read_one(&engine, Key::Attr(Ino(5))).await, Record::Attr(Some(file())));
    server.run::<()>(&["SET", "{2}i5", "other"]);
    engine.wipe().await.unwrap();
    assert_eq!(server.keys(), ["{2}i5"]);
}

#[tokio::test]
async fn the_node_that_owns_the_slot_is_found_again_after_the_slot_moves() {
    let options = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let (mut one, two) = (Server::start_with(&options), Server::start_with(&options));
    let slot = one.run::<i64>(&["CLUSTER", "KEYSLOT", "{1}"]);
    one.run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &two.port.to_string()]);
    one.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let knows_all = |server: &Server| {
        let info = server.run::<String>(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
    };
    while !(knows_all(&one) && knows_all(&two)) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // The node of the address is not the one that owns the slot.
    let engine = connect(&two.url(), &|_| None).await.unwrap();
    assert_works(&engine).await;
    assert_eq!(one.keys(), ["{1}d1", "{1}i5"]);

    let id = two.run::<String>(&["CLUSTER", "MYID"]);
    for key in one.keys() {
        one.run::<i64>(&["DEL", &key]);
    }
    for server in [&two, &one] {
        server.run::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
    }
    assert_works(&engine).await;
    assert_eq!(two.keys(), ["{1}d1", "{1}i5"]);

    // The client remembers a node that the address does not name.
    let engine = connect(&one.url(), &|_| None).await.unwrap();
    assert_works(&engine).await;
    one.stop();
    two.run::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_works(&engine).await;
}

#[tokio::test]
async fn sentinels_lead_to_the_master() {
    let master = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = dir.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\n",
        dir.path().display(),
        master.port
    );
    std::fs::write(&config, text).unwrap();
    let child = Command::new("redis-server")
        .args([config.to_str().unwrap(), "--sentinel"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _sentinel = KillOnDrop(child);
    wait_for_pong(port);
    let dead = free_port();
    let url = format!("redis://main,127.0.0.1:{dead},127.0.0.1:{port}/1");
    assert_works(&connect(&url, &|_| None).await.unwrap()).await;
    assert_eq!(master.keys(), ["d1", "i5"]);
    let error = connect_error(&format!("redis://other,127.0.0.1:{port}/1")).await;
    assert!(error.to_string().contains("other"), "{error}");
}

struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn eviction_is_turned_off() {
    let server = Server::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    server.engine().await;
    let policy: Vec<String> = server.run(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(policy[1], "noeviction");
}
