//! S3 through a proxy: the environment variables, the requests to the proxy, and the errors when it
//! refuses.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use jfs::Error;
use jfs::object::{GetRequest, ObjectStore, Spec, open};
use jfs::secret::Secret;

use crate::proxy::{Proxy, ProxyRequest};
use crate::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use crate::support::command::{Finished, run};
use crate::support::juicefs::command;
use crate::tls::{named, path};

/// No request of these tests takes longer.
const LIMIT: Duration = Duration::from_secs(20);

/// All variables that concern proxies.
const VARIABLES: [&str; 7] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"];

/// Returns the spec of a bucket of the server at another address, with only these proxy variables.
pub fn spec(server: &S3Server, bucket: &str, env: &[(&str, &str)]) -> Spec {
    let mut spec = server.spec("vol");
    bucket.clone_into(&mut spec.bucket);
    (spec.get_timeout, spec.put_timeout) = (LIMIT, LIMIT);
    for name in VARIABLES {
        let said = env.iter().find(|(known, _)| *known == name);
        let value = said.map_or("", |(_, value)| value);
        spec.env.insert(name.to_owned(), Secret::new(value));
    }
    spec
}

/// Uses every operation of a store.
pub async fn use_all_of(store: &dyn ObjectStore) {
    let (key, body) = ("a/b c+d%\u{e4}", Bytes::from(vec![7; 300_000]));
    store.put(key, body.clone(), 0).await.unwrap();
    assert!(store.get(key, GetRequest::whole()).await.unwrap() == body);
    assert_eq!(store.get(key, GetRequest::range(10..20)).await.unwrap(), body[10..20]);
    assert_eq!(store.head(key).await.unwrap().size, 300_000);
    let listed = store.list("a/", "", 10).await.unwrap();
    assert_eq!(listed.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), [key]);
    store.delete(key).await.unwrap();
    assert!(matches!(store.get(key, GetRequest::whole()).await, Err(Error::NotFound)));
    assert!(matches!(store.head(key).await, Err(Error::NotFound)));
}

/// Returns the errors of all operations, which must all fail: one line each.
async fn error_message(store: Arc<dyn ObjectStore>) -> String {
    let failed = [
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap_err(),
        store.get("a", GetRequest::whole()).await.unwrap_err(),
        store.head("a").await.unwrap_err(),
        store.list("", "", 1).await.unwrap_err(),
        store.delete("a").await.unwrap_err(),
    ];
    assert!(failed.iter().all(|error| matches!(error, Error::Storage { .. })), "{failed:?}");
    failed.map(|error| error.to_string()).join("\n")
}

/// Checks that each line contains all of these and never the password.
#[track_caller]
fn assert_says(error_message: &str, parts: &[&str]) {
    for line in error_message.lines() {
        for part in parts {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
    }
    assert!(!error_message.contains("sesame"), "{error_message}");
}

fn plain(server: &S3Server, env: &[(&str, &str)]) -> Arc<dyn ObjectStore> {
    open(&spec(server, "http://store.test/vol", env)).unwrap()
}

/// Opens a store over TLS, which the proxy must not see into.
fn secure(server: &S3Server, env: &[(&str, &str)]) -> Arc<dyn ObjectStore> {
    let bucket = format!("https://eu.store.test/vol?ca-certs={}", path("names-ca.pem"));
    open(&spec(server, &bucket, env)).unwrap()
}

#[tokio::test]
async fn regression_plain_requests_use_the_absolute_uri_and_no_tunnel() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    use_all_of(&*plain(&server, &[("http_proxy", &proxy.address())])).await;
    let (asked, seen) = (proxy.requests(), server.seen());
    assert_eq!(asked.len(), seen.len());
    assert_eq!((&*asked[0].method, &*seen[0].path), ("PUT", "/vol/a/b%20c%2Bd%25%C3%A4"));
    for (asked, seen) in asked.iter().zip(&seen) {
        let query = if seen.query.is_empty() { "" } else { "?" };
        let whole = format!("http://store.test{}{query}{}", seen.path, seen.query);
        assert_eq!((&*asked.method, &*asked.target), (&*seen.method, &*whole));
        assert_eq!(asked.header("host"), "store.test");
        assert_eq!(asked.header("proxy-authorization"), "");
    }
}

#[tokio::test]
async fn the_proxy_connects_to_the_port_of_the_address() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    let env = [("HTTP_PROXY", &*format!("http://{}/", proxy.address()))];
    let store = open(&spec(&server, "http://store.test:9000/vol", &env)).unwrap();
    use_all_of(&*store).await;
    let asked = proxy.requests();
    assert_eq!(asked[1].target, "http://store.test:9000/vol/a/b%20c%2Bd%25%C3%A4?x-id=GetObject");
    assert_eq!(asked[1].header("host"), "store.test:9000");
}

#[tokio::test]
async fn tls_uses_a_tunnel_that_is_reused() {
    let server = S3Server::start_tls(named());
    let proxy = Proxy::start(server.socket());
    use_all_of(&*secure(&server, &[("https_proxy", &proxy.address())])).await;
    let asked = proxy.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!((&*asked[0].method, &*asked[0].target), ("CONNECT", "eu.store.test:443"));
    assert_eq!(asked[0].header("host"), "eu.store.test:443");
    assert!(server.seen().iter().all(|seen| seen.header("host") == "eu.store.test"));
}

#[tokio::test]
async fn the_certificate_of_a_server_behind_a_tunnel_is_checked() {
    let server = S3Server::start_tls(named());
    let proxy = Proxy::start(server.socket());
    let bucket = format!("https://other.test/vol?ca-certs={}", path("names-ca.pem"));
    let env = [("https_proxy", &*proxy.address())];
    let error_message = error_message(open(&spec(&server, &bucket, &env)).unwrap()).await;
    assert_says(&error_message, &["certificate"]);
    assert_eq!(proxy.requests()[0].target, "other.test:443");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn connections_to_a_proxy_are_reused() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    let store = plain(&server, &[("http_proxy", &proxy.address())]);
    for _ in 0..10 {
        store.put("a", Bytes::from_static(b"x"), 0).await.unwrap();
        store.get("a", GetRequest::whole()).await.unwrap();
    }
    assert_eq!((proxy.requests().len(), proxy.connections()), (20, 1));
}

#[tokio::test]
async fn only_the_proxy_gets_its_user_and_password() {
    // The example of RFC 7617.
    let required = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    for is_secure in [false, true] {
        let server = if is_secure { S3Server::start_tls(named()) } else { S3Server::start() };
        let proxy = Proxy::start(server.socket());
        proxy.require(required);
        let address = format!("http://Aladdin:open%20sesame@{}", proxy.address());
        let env = [("HTTP_PROXY", &*address), ("HTTPS_PROXY", &*address)];
        let store = if is_secure { secure(&server, &env) } else { plain(&server, &env) };
        use_all_of(&*store).await;
        assert!(
            proxy.requests().iter().all(|asked| asked.header("proxy-authorization") == required)
        );
        for seen in server.seen() {
            assert_eq!(seen.header("proxy-authorization"), "");
            assert!(!seen.header("authorization").contains("proxy"), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn a_rejected_proxy_password_is_reported() {
    for is_secure in [false, true] {
        let server = if is_secure { S3Server::start_tls(named()) } else { S3Server::start() };
        let proxy = Proxy::start(server.socket());
        proxy.require("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let address = format!("http://Aladdin:wrong-sesame@{}", proxy.address());
        for address in [&proxy.address(), &address] {
            let env = [("HTTP_PROXY", &**address), ("HTTPS_PROXY", &**address)];
            let store = if is_secure { secure(&server, &env) } else { plain(&server, &env) };
            let shown = format!("proxy http://{}: ", proxy.address());
            assert_says(
                &error_message(store).await,
                &[&shown, "407 Proxy Authentication Required"],
            );
        }
        assert!(server.seen().is_empty());
    }
}

#[tokio::test]
async fn regression_the_status_of_a_refusing_proxy_is_reported() {
    for status in [StatusCode::FORBIDDEN, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT] {
        for is_secure in [false, true] {
            let server = if is_secure { S3Server::start_tls(named()) } else { S3Server::start() };
            let proxy = Proxy::start(server.socket());
            proxy.refuse(status);
            let address = format!("http://Aladdin:sesame@{}", proxy.address());
            let env = [("HTTP_PROXY", &*address), ("HTTPS_PROXY", &*address)];
            let store = if is_secure { secure(&server, &env) } else { plain(&server, &env) };
            let shown = format!("proxy http://{}: ", proxy.address());
            assert_says(&error_message(store).await, &[&shown, &status.to_string()]);
        }
    }
}

/// An error of the store itself is reported as such, even through a proxy.
#[tokio::test]
async fn an_error_of_the_store_is_not_taken_for_one_of_the_proxy() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    let mut spec = spec(&server, "http://store.test/vol", &[("http_proxy", &proxy.address())]);
    spec.secret_key = Secret::new("sesame");
    let error = open(&spec).unwrap().get("a", GetRequest::whole()).await.unwrap_err().to_string();
    assert_says(&error, &["SignatureDoesNotMatch", "status 403"]);
    assert!(!error.contains("proxy"), "{error}");
}

#[tokio::test]
async fn regression_an_unreachable_proxy_is_named_without_its_password() {
    let server = S3Server::start();
    let address = {
        let proxy = Proxy::start(server.socket());
        format!("Aladdin:sesame@{}", proxy.address())
    };
    let shown = format!("cannot connect: proxy http://{}: ", address.split_once('@').unwrap().1);
    let env = [("HTTP_PROXY", &*address), ("HTTPS_PROXY", &*address)];
    for store in [plain(&server, &env), secure(&server, &env)] {
        assert_says(&error_message(store).await, &[&shown, "refused"]);
    }
}

#[tokio::test]
async fn regression_a_proxy_may_use_tls_itself() {
    for is_secure in [false, true] {
        let server = if is_secure { S3Server::start_tls(named()) } else { S3Server::start() };
        let proxy = Proxy::start_tls(server.socket(), named());
        let address = format!("https://{}", proxy.address());
        let env = [("HTTP_PROXY", &*address), ("HTTPS_PROXY", &*address)];
        let scheme = if is_secure { "https" } else { "http" };
        let bucket = format!("{scheme}://eu.store.test/vol?ca-certs={}", path("names-ca.pem"));
        use_all_of(&*open(&spec(&server, &bucket, &env)).unwrap()).await;
        assert_eq!(proxy.requests()[0].method == "CONNECT", is_secure);

        // An untrusted proxy gets no request.
        let bucket = format!("{scheme}://eu.store.test/vol");
        let error_message = error_message(open(&spec(&server, &bucket, &env)).unwrap()).await;
        assert_says(&error_message, &[&format!("proxy {address}: "), "certificate"]);
        assert!(proxy.requests().is_empty());
    }
}

#[tokio::test]
async fn this_machine_is_never_accessed_through_a_proxy() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    for host in ["127.0.0.1", "localhost"] {
        let bucket = format!("http://{host}:{}/vol", server.socket().port());
        let store = open(&spec(&server, &bucket, &[("http_proxy", &proxy.address())])).unwrap();
        use_all_of(&*store).await;
    }
    assert_eq!(proxy.connections(), 0);
}

/// By an address of this machine that is not a loopback address.
#[tokio::test]
async fn hosts_in_no_proxy_are_accessed_directly() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    let (address, port) = (proxy.address(), server.socket().port());
    for (list, is_direct) in [
        ("0.0.0.0", true),
        ("other.test, 0.0.0.0/8", true),
        ("*", true),
        (&format!("0.0.0.0:{port}"), true),
        ("0.0.0.0:80", false),
        ("other.test", false),
        ("", false),
    ] {
        let env = [("http_proxy", &*address), ("no_proxy", list)];
        let store = open(&spec(&server, &format!("http://0.0.0.0:{port}/vol"), &env)).unwrap();
        use_all_of(&*store).await;
        assert_eq!(proxy.requests().is_empty(), is_direct, "{list}");
    }
}

/// A bucket in the host name makes another host, which only the proxy can resolve.
#[tokio::test]
async fn regression_no_proxy_applies_to_the_requested_host_not_the_endpoint() {
    let server = S3Server::start_at(&["store.invalid"], None);
    let proxy = Proxy::start(server.socket());
    let address = proxy.address();
    for (list, is_direct) in [("vol.store.invalid", true), ("other.store.invalid", false)] {
        let env = [("http_proxy", &*address), ("no_proxy", list)];
        let mut spec = spec(&server, "http://store.invalid/vol", &env);
        spec.env.insert("JFS_S3_VHOST_STYLE".to_owned(), Secret::new("1"));
        let outcome = open(&spec).unwrap().put("a", Bytes::from_static(b"x"), 0).await;
        assert_eq!(outcome.is_err(), is_direct, "{list}: {outcome:?}");
        assert_eq!(proxy.requests().is_empty(), is_direct, "{list}");
    }
}

#[tokio::test]
async fn an_invalid_variable_is_named_without_its_value() {
    let server = S3Server::start();
    let env = [("HTTPS_PROXY", "socks5://Aladdin:sesame@127.0.0.1:1080")];
    let error = open(&spec(&server, "https://store.test/vol", &env)).err().unwrap();
    assert!(matches!(error, Error::BadInput(_)), "{error:?}");
    assert_says(&error.to_string(), &["HTTPS_PROXY: ", "socks5"]);
    // It does not matter to requests that do not need it.
    use_all_of(&*open(&spec(&server, &server.address("vol"), &env)).unwrap()).await;
}

/// Formats a volume on a bucket with this client or the Go client, in this environment.
fn format(mut program: Command, bucket: &str, env: &[(&str, &str)]) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite3://{}", dir.path().join("meta.db").display());
    for name in VARIABLES {
        program.env_remove(name);
    }
    program.env_remove("JFS_NO_CHECK_OBJECT_STORAGE");
    program.args(["format", &url, "vol", "--storage", "s3", "--bucket", bucket]);
    program.env("ACCESS_KEY", ACCESS_KEY).env("SECRET_KEY", SECRET_KEY);
    program.env("AWS_EC2_METADATA_DISABLED", "true").envs(env.iter().copied());
    run(program, Duration::from_mins(1))
}

fn ours() -> Command {
    Command::new(env!("CARGO_BIN_EXE_jfs-mount"))
}

#[test]
fn a_program_takes_the_proxy_from_its_environment() {
    let server = S3Server::start_at(&["s3.us-east-1.amazonaws.com"], None);
    server.bucket("vol");
    let proxy = Proxy::start(server.socket());
    proxy.require("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    let bucket = "http://vol.s3.us-east-1.amazonaws.com";
    let address = format!("http://Aladdin:open%20sesame@{}", proxy.address());
    let done = format(ours(), bucket, &[("http_proxy", &address)]).ok();
    assert!(!done.to_string().contains("sesame"), "{done}");
    let mark = "http://vol.s3.us-east-1.amazonaws.com/vol/juicefs_uuid";
    assert!(
        proxy
            .requests()
            .iter()
            .any(|asked| asked.method == "PUT" && asked.target.starts_with(mark))
    );

    let error_message = format(ours(), bucket, &[("http_proxy", &proxy.address())]).refused();
    assert!(error_message.stderr.contains("407 Proxy Authentication Required"), "{error_message}");
}

/// Returns the requests to a proxy while a volume was formatted: how the uuid object was written,
/// and everything that is not random.
fn way(asked: &[ProxyRequest]) -> (String, Vec<String>) {
    let whom = |one: &ProxyRequest| {
        format!("{} {}", one.header("host"), one.header("proxy-authorization"))
    };
    let is_mark = |one: &&ProxyRequest| one.method == "PUT" && one.target.contains("juicefs_uuid");
    let mark = asked.iter().find(is_mark).map(|mark| mark.target.replace("?x-id=PutObject", ""));
    let mut all: Vec<_> = asked.iter().map(|one| format!("{} {}", one.method, whom(one))).collect();
    all.sort();
    all.dedup();
    (mark.unwrap_or_default(), all)
}

/// Returns the requests of both clients for a fresh bucket.
fn ways(
    server: &S3Server,
    proxy: &Proxy,
    bucket: &str,
    env: &[(&str, &str)],
) -> [(String, Vec<String>); 2] {
    [command(&[]), ours()].map(|program| {
        for name in ["vol", "a.b"] {
            let _ = std::fs::remove_dir_all(server.folder(name));
            server.bucket(name);
        }
        format(program, bucket, env).ok();
        way(&proxy.requests())
    })
}

#[test]
fn the_go_client_sends_the_proxy_the_same_requests() {
    let domains = ["s3.us-east-1.amazonaws.com", "store.test:9000"];
    let server = S3Server::start_at(&domains, None);
    let proxy = Proxy::start(server.socket());
    let address = format!("http://Aladdin:open%20sesame@{}", proxy.address());
    for (bucket, host_style, mark) in [
        ("http://vol.s3.us-east-1.amazonaws.com", "", "http://vol.s3.us-east-1.amazonaws.com/vol"),
        ("http://a.b.s3.us-east-1.amazonaws.com", "", "http://s3.us-east-1.amazonaws.com/a.b/vol"),
        ("http://vol.store.test:9000", "", "http://store.test:9000/vol/vol"),
        ("http://store.test:9000/vol", "1", "http://vol.store.test:9000/vol"),
    ] {
        let env = [("HTTP_PROXY", &*address), ("JFS_S3_VHOST_STYLE", host_style)];
        let [theirs, ours] = ways(&server, &proxy, bucket, &env);
        assert_eq!(ours.0, format!("{mark}/juicefs_uuid"));
        assert_eq!(ours, theirs);
    }
}

#[test]
fn the_go_client_uses_the_same_tunnel() {
    let server = S3Server::start_at(&["s3.us-east-1.amazonaws.com"], Some(named()));
    let proxy = Proxy::start(server.socket());
    let address = format!("http://Aladdin:open%20sesame@{}", proxy.address());
    let trust = path("names-ca.pem");
    let env = [("https_proxy", &*address), ("SSL_CERT_FILE", &*trust)];
    let bucket = "https://vol.s3.us-east-1.amazonaws.com";
    let [theirs, ours] = ways(&server, &proxy, bucket, &env);
    let authorization = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    let tunnel = format!("CONNECT vol.s3.us-east-1.amazonaws.com:443 {authorization}");
    assert_eq!(ours, (String::new(), vec![tunnel]));
    assert_eq!(ours, theirs);
    assert!(server.seen().iter().any(|seen| seen.path == "/vol/juicefs_uuid"));
}
