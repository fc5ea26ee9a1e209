use std::io::Write;
use std::time::Duration;

use super::super::address::{Address, Endpoint, Topology};
use crate::error::{Error, Result};

fn parse(url: &str) -> Result<Address> {
    Address::parse(url, &|_| None)
}

fn good(url: &str) -> Address {
    parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

#[test]
fn an_address_without_a_scheme_is_a_redis_address() {
    let address = good("localhost/3");
    assert_eq!(address.topology, Topology::Single(tcp("localhost", 6379)));
    assert_eq!(address.db, 3);
    assert!(address.tls.is_none());
}

#[test]
fn user_password_host_port_and_database_are_parsed() {
    let address = good("redis://me:p%40ss%3Aword@10.0.0.1:6380/15");
    assert_eq!(address.login.user.as_deref(), Some("me"));
    assert_eq!(address.login.password.as_deref(), Some("p@ss:word"));
    assert_eq!(address.topology, Topology::Single(tcp("10.0.0.1", 6380)));
    assert_eq!(address.db, 15);
    assert!(!address.place.contains("p%40ss"), "{}", address.place);
}

#[test]
fn a_password_that_the_address_lacks_comes_from_the_environment() {
    let env = |name: &str| match name {
        "REDIS_PASSWORD" => Some(String::new()),
        "META_PASSWORD" => Some("secret".to_owned()),
        "SENTINEL_PASSWORD" => Some("watch".to_owned()),
        _ => None,
    };
    let address = Address::parse("redis://h", &env).unwrap();
    assert_eq!(address.login.password.as_deref(), Some("secret"));
    assert_eq!(address.sentinel_login.password.as_deref(), Some("watch"));
    let given = Address::parse("redis://:own@h", &env).unwrap();
    assert_eq!(given.login.password.as_deref(), Some("own"));
    assert_eq!(given.login.user, None);
}

#[test]
fn a_password_file_is_read_and_trimmed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "secret ").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let env = move |name: &str| (name == "META_PASSWORD_FILE").then(|| path.clone());
    let address = Address::parse("redis://h", &env).unwrap();
    assert_eq!(address.login.password.as_deref(), Some("secret"));

    let env = |name: &str| (name == "META_PASSWORD_FILE").then(|| "/nonexistent/pw".to_owned());
    let error = Address::parse("redis://h", &env).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/pw"), "{error}");
}

#[test]
fn a_comma_before_the_first_colon_means_sentinels() {
    let address = good("redis://:pw@mymaster,s1,s2,s3:26380/2");
    let sentinels = vec![tcp("s1", 26380), tcp("s2", 26380), tcp("s3", 26380)];
    assert_eq!(address.topology, Topology::Sentinel { master: "mymaster".to_owned(), sentinels });
    assert_eq!(address.db, 2);
}

#[test]
fn several_hosts_with_ports_are_a_cluster() {
    let address = good("redis://h1:7000,h2:7001,[::1]:7002/1");
    let nodes = vec![tcp("h1", 7000), tcp("h2", 7001), tcp("::1", 7002)];
    assert_eq!(address.topology, Topology::Cluster(nodes));
}

#[test]
fn a_unix_socket_takes_its_database_from_the_query() {
    let address = good("unix:///run/redis/redis.sock?db=4");
    assert_eq!(address.topology, Topology::Single(Endpoint::Unix("/run/redis/redis.sock".into())));
    assert_eq!(address.db, 4);
}

#[test]
fn tls_parameters_may_have_dashes_or_underscores() {
    let address = good(
        "rediss://h:6380/1?tls-ca-cert-file=/ca.pem&tls_cert_file=/c.pem&tls-key-file=/k.pem\
         &tls-server-name=redis.local&insecure-skip-verify=true",
    );
    let tls = address.tls.unwrap();
    assert_eq!(tls.files.ca.unwrap().to_str(), Some("/ca.pem"));
    assert_eq!(tls.files.cert.unwrap().to_str(), Some("/c.pem"));
    assert_eq!(tls.files.key.unwrap().to_str(), Some("/k.pem"));
    assert_eq!(tls.server_name.as_deref(), Some("redis.local"));
    assert!(tls.files.skip_verify);
    assert!(!good("rediss://h?insecure-skip-verify=false").tls.unwrap().files.skip_verify);
}

#[test]
fn durations_are_parsed_as_go_writes_them() {
    let address = good("redis://h?read-timeout=1m30s&min-retry-backoff=50ms&dial_timeout=2");
    assert_eq!(address.reply_timeout, Some(Duration::from_secs(90)));
    assert_eq!(address.min_backoff, Duration::from_millis(50));
    assert_eq!(address.dial_timeout, Duration::from_secs(2));
    assert_eq!(good("redis://h?read-timeout=-1").reply_timeout, None);
    assert_eq!(good("redis://h").reply_timeout, Some(Duration::from_secs(30)));
}

#[test]
fn parameters_of_the_go_library_are_accepted() {
    let address = good("redis://h/1?pool_size=10&max_retries=3&client-cache=false&protocol=3");
    assert!(address.unsupported.is_empty());
}

#[test]
fn parameters_of_the_go_client_without_effect_are_reported() {
    let address = good("redis://h/1?route-read=replica&client-cache=true&client_cache_size=100");
    assert_eq!(address.unsupported, ["client-cache", "client-cache-size", "route-read"]);
}

#[test]
fn the_error_for_an_unknown_parameter_names_it() {
    let error = parse("redis://:topsecret@h/1?read-timeot=3s").map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::BadInput(_)));
    let text = error.to_string();
    assert!(text.contains("read-timeot") && !text.contains("topsecret"), "{text}");
}

#[test]
fn errors_name_the_invalid_part() {
    let cases = [
        ("redis://h/one", "one"),
        ("redis://h:port/1", "port"),
        ("redis://h/1/2", "/1/2"),
        ("unix://", "socket path"),
        ("redis://h?read-timeout=soon", "read-timeout"),
        ("redis://:%zz@h", "percent"),
    ];
    for (url, named) in cases {
        let error = parse(url).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(named), "{url}: {error}");
    }
}
