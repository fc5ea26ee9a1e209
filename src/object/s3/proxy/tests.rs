use super::*;

fn proxies(env: &[(&str, &str)]) -> Proxies {
    let look = |name: &str| {
        let known = env.iter().find(|(known, value)| *known == name && !value.is_empty());
        known.map(|(_, value)| (*value).to_owned())
    };
    Proxies::from_env(&look)
}

/// Returns the proxy for a request as it is displayed; empty if there is none.
fn shown(proxies: &Proxies, uri: &str) -> String {
    let uri: Uri = uri.parse().unwrap();
    proxies.of(&uri).unwrap().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn each_scheme_has_its_own_proxy() {
    let both = proxies(&[("HTTP_PROXY", "http://a:3128"), ("HTTPS_PROXY", "https://b/path")]);
    assert_eq!(shown(&both, "http://store.test/vol"), "proxy http://a:3128");
    assert_eq!(shown(&both, "https://store.test/vol"), "proxy https://b");
    let one = proxies(&[("http_proxy", "a:3128"), ("ALL_PROXY", "socks5://elsewhere")]);
    assert_eq!(shown(&one, "http://store.test/vol"), "proxy http://a:3128");
    assert_eq!(shown(&one, "https://store.test/vol"), "");
    let upper_first = proxies(&[("http_proxy", "low"), ("HTTP_PROXY", "up")]);
    assert_eq!(shown(&upper_first, "http://store.test/"), "proxy http://up");
    let empty = proxies(&[("http_proxy", "low"), ("HTTP_PROXY", "")]);
    assert_eq!(shown(&empty, "http://store.test/"), "proxy http://low");
}

#[test]
fn a_password_is_decoded_for_the_proxy_and_never_displayed() {
    for (value, pair) in [
        ("http://user:s%40sam%C3%A9@a:3128", Some("user:s@sam\u{e9}")),
        ("user:s@same@a:3128", Some("user:s@same")),
        ("http://user@a:3128", Some("user:")),
        ("http://:sesame@a:3128", Some(":sesame")),
        ("http://a:3128", None),
    ] {
        let proxies = proxies(&[("HTTPS_PROXY", value)]);
        assert_eq!(shown(&proxies, "https://store.test/"), "proxy http://a:3128", "{value}");
        let proxy = proxies.of(&Uri::from_static("https://store.test/")).unwrap().unwrap();
        let sent = proxy.authorization().map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(sent, pair.map(|pair| format!("Basic {}", STANDARD.encode(pair))), "{value}");
        assert!(proxy.authorization().is_none_or(HeaderValue::is_sensitive), "{value}");
    }
}

#[test]
fn an_invalid_variable_is_reported_by_name_when_it_is_needed() {
    for value in ["socks5://user:sesame@a:1080", "http://user:sesame@:x", "http://u:%zzsesame@a"] {
        let proxies = proxies(&[("https_proxy", value), ("no_proxy", "near.test")]);
        let why = proxies.of(&Uri::from_static("https://store.test/")).err().unwrap();
        assert!(why.starts_with("https_proxy: ") && !why.contains("sesame"), "{why}");
        assert_eq!(shown(&proxies, "http://store.test/"), "");
        assert_eq!(shown(&proxies, "https://near.test/"), "");
    }
}

#[test]
fn addresses_of_this_machine_use_no_proxy() {
    let proxies = proxies(&[("http_proxy", "a")]);
    for host in [
        "localhost",
        "LOCALHOST:9000",
        "127.0.0.1:9000",
        "127.8.8.8",
        "[::1]:9000",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "169.254.170.2",
        "[fe80::1]",
    ] {
        assert_eq!(shown(&proxies, &format!("http://{host}/")), "", "{host}");
    }
    for host in ["vol.localhost", "10.0.0.1", "[fd00:ec2::254]", "localhost.test"] {
        assert_eq!(shown(&proxies, &format!("http://{host}/")), "proxy http://a", "{host}");
    }
}

#[test]
fn no_proxy_is_parsed_as_in_the_go_client() {
    for (list, exempt, others) in [
        (
            "store.test",
            &["store.test", "STORE.test:81", "vol.store.test"][..],
            &["astore.test"][..],
        ),
        ("STORE.test", &["store.test"], &[]),
        (".store.test", &["vol.store.test", "a.vol.store.test"], &["store.test"]),
        ("*.store.test", &["vol.store.test"], &["store.test"]),
        (
            "store.test:81",
            &["store.test:81", "vol.store.test:81"],
            &["store.test", "store.test:80"],
        ),
        ("store.test:80", &["store.test", "store.test:80"], &["store.test:81"]),
        (" a.test , ,b.test", &["a.test", "b.test"], &["c.test"]),
        ("*", &["store.test", "10.0.0.1"], &[]),
        ("a.test,*", &["store.test"], &[]),
        ("10.0.0.1", &["10.0.0.1", "10.0.0.1:81"], &["10.0.0.2", "0.0.1.test"]),
        ("10.0.0.1:81", &["10.0.0.1:81"], &["10.0.0.1"]),
        ("10.1.0.0/16", &["10.1.2.3"], &["10.2.0.1", "[::a01:203]"]),
        ("0.0.0.0/0", &["10.1.2.3"], &["store.test"]),
        ("fd00::/8", &["[fd12::1]:81"], &["[fe12::1]", "10.0.0.1"]),
        ("fd00::1,[fd00::2]:81", &["[fd00::1]", "[fd00::2]:81"], &["[fd00::2]"]),
        ("test", &["store.test"], &["test.store"]),
        ("", &[], &["store.test"]),
        (",., :80,10.0.0.0/33,store.test:x", &[], &["store.test", "10.0.0.0"]),
    ] {
        let proxies = proxies(&[("http_proxy", "a"), ("no_proxy", list)]);
        for host in exempt {
            assert_eq!(shown(&proxies, &format!("http://{host}/")), "", "{list}: {host}");
        }
        for host in others {
            let found = shown(&proxies, &format!("http://{host}/"));
            assert_eq!(found, "proxy http://a", "{list}: {host}");
        }
    }
}
