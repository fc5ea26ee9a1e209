//! Buckets in the host name: the requests, and the region they are signed for.
//!
//! A proxy resolves every name to the test server, so that real addresses can be used.

use bytes::Bytes;
use jfs::object::{Spec, open};
use jfs::secret::Secret;

use crate::proxied::{spec, use_all_of};
use crate::proxy::Proxy;
use crate::s3::{S3Server, Seen};
use crate::tls::{named, path};

/// Domains of the buckets in these tests.
const DOMAINS: [&str; 8] = [
    "s3.us-east-1.amazonaws.com",
    "s3.eu-west-1.amazonaws.com",
    "s3.cn-north-1.amazonaws.com.cn",
    "oss-cn-hangzhou.aliyuncs.com",
    "oss-cn-hangzhou-internal.aliyuncs.com",
    "s3.eu-central-1.wasabisys.com",
    "store.test",
    "store.test:9000",
];

struct Case {
    storage: &'static str,
    bucket: &'static str,
    /// The host of the requests, as the server sees it.
    host: &'static str,
    region: &'static str,
}

const fn case(
    storage: &'static str,
    bucket: &'static str,
    host: &'static str,
    region: &'static str,
) -> Case {
    Case { storage, bucket, host, region }
}

const AWS: &str = "vol.s3.us-east-1.amazonaws.com";
const OSS: &str = "vol.oss-cn-hangzhou.aliyuncs.com";
const INTERNAL: &str = "vol.oss-cn-hangzhou-internal.aliyuncs.com";

/// The key of these tests in a path.
const KEY: &str = "/a/b%20c%2Bd%25%C3%A4";

fn host_style(mut spec: Spec) -> Spec {
    spec.env.insert("JFS_S3_VHOST_STYLE".to_owned(), Secret::new("1"));
    spec
}

#[track_caller]
fn assert_asked(seen: &[Seen], case: &Case) {
    assert_eq!((&*seen[0].method, &*seen[0].path), ("PUT", KEY), "{}", case.bucket);
    assert!(seen.iter().any(|one| one.query.contains("list-type=2") && one.path == "/"));
    let scope = format!("/{}/s3/aws4_request", case.region);
    for one in seen {
        assert_eq!(one.header("host"), case.host, "{}", case.bucket);
        assert!(one.header("authorization").contains(&scope), "{}: {one:?}", case.bucket);
    }
}

/// The server checks each signature, and so that it is for this host.
#[tokio::test]
async fn a_bucket_is_requested_by_its_host_name() {
    let server = S3Server::start_at(&DOMAINS, None);
    let proxy = Proxy::start(server.socket());
    for case in [
        case("s3", "http://vol.s3.us-east-1.amazonaws.com", AWS, "us-east-1"),
        case("s3", "http://vol.s3.amazonaws.com", AWS, "us-east-1"),
        case("s3", "http://s3.us-east-1.amazonaws.com/vol/", AWS, "us-east-1"),
        case(
            "s3",
            "http://vol.s3-eu-west-1.amazonaws.com",
            "vol.s3.eu-west-1.amazonaws.com",
            "eu-west-1",
        ),
        case(
            "s3",
            "http://vol.s3.cn-north-1.amazonaws.com.cn",
            "vol.s3.cn-north-1.amazonaws.com.cn",
            "cn-north-1",
        ),
        case("oss", "http://vol.oss-cn-hangzhou.aliyuncs.com", OSS, "cn-hangzhou"),
        case("oss", "http://vol.oss-cn-hangzhou-internal.aliyuncs.com", INTERNAL, "cn-hangzhou"),
        case(
            "wasabi",
            "http://vol.s3.eu-central-1.wasabisys.com",
            "vol.s3.eu-central-1.wasabisys.com",
            "eu-central-1",
        ),
    ] {
        let mut spec = spec(&server, case.bucket, &[("http_proxy", &proxy.address())]);
        case.storage.clone_into(&mut spec.storage);
        use_all_of(&*open(&spec).unwrap()).await;
        assert_asked(&server.seen(), &case);
    }
}

#[tokio::test]
async fn a_bucket_is_requested_by_its_host_name_over_tls() {
    let server = S3Server::start_at(&DOMAINS, Some(named()));
    let proxy = Proxy::start(server.socket());
    for case in [
        case("s3", "https://vol.s3.us-east-1.amazonaws.com", AWS, "us-east-1"),
        case("s3", "s3.us-east-1.amazonaws.com/vol", AWS, "us-east-1"),
        case("oss", "https://vol.oss-cn-hangzhou.aliyuncs.com", OSS, "cn-hangzhou"),
        case("oss", "vol.oss-cn-hangzhou-internal.aliyuncs.com", INTERNAL, "cn-hangzhou"),
    ] {
        let bucket = format!("{}?ca-certs={}", case.bucket, path("names-ca.pem"));
        let mut spec = spec(&server, &bucket, &[("https_proxy", &proxy.address())]);
        case.storage.clone_into(&mut spec.storage);
        use_all_of(&*open(&spec).unwrap()).await;
        assert_asked(&server.seen(), &case);
        let targets: Vec<_> = proxy.requests().into_iter().map(|asked| asked.target).collect();
        assert_eq!(targets, [format!("{}:443", case.host)]);
    }
}

#[tokio::test]
async fn other_endpoints_have_the_bucket_in_the_host_if_configured() {
    let server = S3Server::start_at(&DOMAINS, None);
    let proxy = Proxy::start(server.socket());
    for case in [
        case("s3", "http://store.test/vol", "vol.store.test", "us-east-1"),
        case("s3", "http://vol.store.test:9000", "vol.store.test:9000", "us-east-1"),
        case("minio", "http://store.test:9000/vol?region=r", "vol.store.test:9000", "r"),
    ] {
        let env = [("http_proxy", &*proxy.address())];
        let mut spec = host_style(spec(&server, case.bucket, &env));
        case.storage.clone_into(&mut spec.storage);
        use_all_of(&*open(&spec).unwrap()).await;
        assert_asked(&server.seen(), &case);
    }
}

#[tokio::test]
async fn other_endpoints_have_the_bucket_in_the_path_by_default() {
    let server = S3Server::start();
    let proxy = Proxy::start(server.socket());
    for bucket in ["http://store.test/vol", "http://vol.store.test", "store.test/vol/"] {
        let env = [("http_proxy", &*proxy.address())];
        let mut spec = spec(&server, bucket, &env);
        spec.env.insert("JFS_S3_VHOST_STYLE".to_owned(), Secret::new(""));
        use_all_of(&*open(&spec).unwrap()).await;
        let seen = &server.seen()[0];
        assert_eq!((seen.header("host"), &*seen.path), ("store.test", &*format!("/vol{KEY}")));
    }
}

/// A certificate for `*.domain` does not cover names with more dots.
#[tokio::test]
async fn a_bucket_with_dots_is_in_the_path() {
    for scheme in ["http", "https"] {
        let tls = (scheme == "https").then(named);
        let server = S3Server::start_at(&DOMAINS, tls);
        let proxy = Proxy::start(server.socket());
        server.bucket("a.b");
        let trust = path("names-ca.pem");
        let bucket = format!("{scheme}://a.b.s3.eu-west-1.amazonaws.com?ca-certs={trust}");
        let address = proxy.address();
        let env = [("http_proxy", &*address), ("https_proxy", &*address)];
        use_all_of(&*open(&spec(&server, &bucket, &env)).unwrap()).await;
        let seen = &server.seen()[0];
        let expected = ("s3.eu-west-1.amazonaws.com", &*format!("/a.b{KEY}"));
        assert_eq!((seen.header("host"), &*seen.path), expected);
    }
}

#[tokio::test]
async fn a_missing_bucket_in_the_host_is_created() {
    let server = S3Server::start_at(&DOMAINS, None);
    let proxy = Proxy::start(server.socket());
    let env = [("http_proxy", &*proxy.address())];
    for bucket in
        ["http://new.s3.us-east-1.amazonaws.com", "http://newer.oss-cn-hangzhou.aliyuncs.com"]
    {
        let mut spec = spec(&server, bucket, &env);
        if bucket.contains("oss") {
            "oss".clone_into(&mut spec.storage);
        }
        let store = open(&spec).unwrap();
        let error = store.put("a", Bytes::from_static(b"x"), 0).await.unwrap_err();
        assert!(error.to_string().contains("NoSuchBucket"), "{error}");
        server.seen();
        store.create().await.unwrap();
        let made = server.seen().into_iter().find(|seen| seen.method == "PUT").unwrap();
        assert_eq!(format!("http://{}{}", made.header("host"), made.path), format!("{bucket}/"));
        use_all_of(&*store).await;
    }
}

#[tokio::test]
async fn the_region_of_a_bare_bucket_name_is_requested() {
    let server = S3Server::start_at(&DOMAINS, Some(named()));
    let proxy = Proxy::start(server.socket());
    let bucket = format!("vol?ca-certs={}", path("names-ca.pem"));
    let mut spec = spec(&server, &bucket, &[("https_proxy", &proxy.address())]);
    spec.env.insert("AWS_REGION".to_owned(), Secret::new(""));
    use_all_of(&*open(&spec).unwrap()).await;
    let seen = server.seen();
    assert_eq!((seen[0].header("host"), &*seen[0].query), (AWS, "location"));
    assert_asked(&seen[1..], &case("s3", "vol", AWS, "us-east-1"));
}
