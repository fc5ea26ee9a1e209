use super::*;

fn address(service: Service, bucket: &str) -> Address {
    service.address(bucket, &|_| None).unwrap()
}

fn with(service: Service, bucket: &str, env: &[(&str, &str)]) -> Address {
    let look = |name: &str| {
        env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    service.address(bucket, &look).unwrap()
}

/// Returns bucket, endpoint, region, and whether the bucket is in the path.
fn parts(address: &Address) -> (&str, &str, &str, bool) {
    let text = |part: &Option<String>| part.as_deref().unwrap_or("-").to_owned().leak() as &str;
    (&address.bucket, text(&address.endpoint), text(&address.region), address.path_style)
}

#[test]
fn aws_addresses_contain_the_region() {
    for (bucket, expected) in [
        ("https://vol.s3.eu-west-1.amazonaws.com", ("vol", "-", "eu-west-1", false)),
        ("https://vol.s3-eu-west-1.amazonaws.com/", ("vol", "-", "eu-west-1", false)),
        ("https://a.b.s3.eu-west-1.amazonaws.com", ("a.b", "-", "eu-west-1", false)),
        ("vol.s3.amazonaws.com", ("vol", "-", "us-east-1", false)),
        ("vol.s3-external-1.amazonaws.com", ("vol", "-", "us-east-1", false)),
        ("https://vol.s3.dualstack.us-west-2.amazonaws.com", ("vol", "-", "us-west-2", false)),
        ("https://vol.s3.cn-north-1.amazonaws.com.cn", ("vol", "-", "cn-north-1", false)),
        ("https://s3.us-west-2.amazonaws.com/vol", ("vol", "-", "us-west-2", false)),
        ("https://s3.cn-north-1.amazonaws.com.cn/vol/", ("vol", "-", "cn-north-1", false)),
        (
            "http://vol.s3.cn-north-1.amazonaws.com.cn",
            ("vol", "http://s3.cn-north-1.amazonaws.com.cn", "cn-north-1", false),
        ),
        (
            "https://vol.vpce-1a2b.s3.us-west-2.vpce.amazonaws.com",
            ("vol", "https://vpce-1a2b.s3.us-west-2.vpce.amazonaws.com", "us-west-2", true),
        ),
        ("vol", ("vol", "-", "-", false)),
    ] {
        assert_eq!(parts(&address(Service::S3, bucket)), expected, "{bucket}");
    }
}

#[test]
fn other_endpoints_have_the_bucket_in_host_or_path() {
    for (bucket, expected) in [
        ("http://127.0.0.1:9000/vol", ("vol", "http://127.0.0.1:9000", "us-east-1", true)),
        ("http://127.0.0.1:9000/vol/deep", ("vol", "http://127.0.0.1:9000", "us-east-1", true)),
        ("127.0.0.1:9000/vol", ("vol", "http://127.0.0.1:9000", "us-east-1", true)),
        ("vol.example.com", ("vol", "http://example.com", "us-east-1", true)),
        ("https://vol.example.com:444", ("vol", "https://example.com:444", "us-east-1", true)),
        ("https://store/vol?region=x", ("vol", "https://store", "x", true)),
        ("https://vol.s3.gra.cloud.ovh.net", ("vol", "https://s3.gra.cloud.ovh.net", "gra", true)),
        (
            "https://vol.ns.compat.objectstorage.uk-london-1.oraclecloud.com",
            (
                "vol",
                "https://ns.compat.objectstorage.uk-london-1.oraclecloud.com",
                "uk-london-1",
                true,
            ),
        ),
    ] {
        assert_eq!(parts(&address(Service::S3, bucket)), expected, "{bucket}");
    }
}

#[test]
fn the_environment_supplies_region_and_style_if_the_address_does_not() {
    let env = [("AWS_DEFAULT_REGION", "eu-1"), ("JFS_S3_VHOST_STYLE", "1")];
    let found = with(Service::S3, "http://example.com/vol", &env);
    assert_eq!(parts(&found), ("vol", "http://example.com", "eu-1", false));
    let found = with(Service::S3, "https://vol.s3.us-west-2.amazonaws.com", &env);
    assert_eq!(found.region.as_deref(), Some("us-west-2"));
    let found = with(Service::S3, "http://example.com/vol", &[("JFS_S3_VHOST_STYLE", "false")]);
    assert!(found.path_style);
    let found = with(Service::Minio, "h:9000/vol", &[("MINIO_REGION", "r")]);
    assert_eq!(found.region.as_deref(), Some("r"));
}

#[test]
fn minio_has_the_bucket_in_the_path() {
    for (bucket, expected) in [
        ("127.0.0.1:9000/vol", ("vol", "http://127.0.0.1:9000", "us-east-1", true)),
        ("https://h/minio/vol/x?region=r", ("vol", "https://h", "r", true)),
    ] {
        assert_eq!(parts(&address(Service::Minio, bucket)), expected, "{bucket}");
    }
    let error = Service::Minio.address("http://127.0.0.1:9000", &|_| None).unwrap_err();
    assert!(error.to_string().contains("names no bucket"), "{error}");
}

#[test]
fn oss_has_the_region_in_the_host() {
    for (bucket, expected) in [
        (
            "https://vol.oss-cn-shanghai.aliyuncs.com",
            ("vol", "https://oss-cn-shanghai.aliyuncs.com", "cn-shanghai", false),
        ),
        (
            "vol.oss-cn-beijing-internal.aliyuncs.com",
            ("vol", "https://oss-cn-beijing-internal.aliyuncs.com", "cn-beijing", false),
        ),
        (
            "https://vol.ep-1.oss.cn-beijing.privatelink.aliyuncs.com",
            ("vol", "https://ep-1.oss.cn-beijing.privatelink.aliyuncs.com", "cn-beijing", true),
        ),
        ("http://vol.cdn.example.com", ("vol", "http://cdn.example.com", "cn-hangzhou", false)),
    ] {
        assert_eq!(parts(&address(Service::Oss, bucket)), expected, "{bucket}");
    }
    let error = Service::Oss.address("vol", &|_| None).unwrap_err();
    assert!(error.to_string().contains("bucket.endpoint"), "{error}");
}

#[test]
fn other_services_have_the_region_in_various_labels() {
    for (service, bucket, expected) in [
        (
            Service::Wasabi,
            "vol.s3.eu-central-1.wasabisys.com",
            ("vol", "https://s3.eu-central-1.wasabisys.com", "eu-central-1", false),
        ),
        (
            Service::Scaleway,
            "vol.s3.fr-par.scw.cloud",
            ("vol", "https://s3.fr-par.scw.cloud", "fr-par", false),
        ),
        (
            Service::Spaces,
            "vol.nyc3.digitaloceanspaces.com",
            ("vol", "https://nyc3.digitaloceanspaces.com", "nyc3", false),
        ),
        (
            Service::Cos,
            "vol-1250000000.cos.ap-guangzhou.myqcloud.com",
            ("vol-1250000000", "https://cos.ap-guangzhou.myqcloud.com", "ap-guangzhou", false),
        ),
        (
            Service::Obs,
            "vol.obs.cn-north-4.myhuaweicloud.com",
            ("vol", "https://obs.cn-north-4.myhuaweicloud.com", "cn-north-4", false),
        ),
        (Service::Oos, "vol.oos-sd.ctyunapi.cn", ("vol", "https://oos-sd.ctyunapi.cn", "sd", true)),
        (
            Service::Eos,
            "vol.eos-wuxi-1.cmecloud.cn",
            ("vol", "https://eos-wuxi-1.cmecloud.cn", "us-east-1", true),
        ),
    ] {
        assert_eq!(parts(&address(service, bucket)), expected, "{bucket}");
    }
}

#[test]
fn options_are_parsed_from_the_query() {
    let found = address(
        Service::S3,
        "https://h.example/vol?tls-insecure-skip-verify=true&ca-certs=/ca&ssl-cert=/c&ssl-key=/k\
         &disable-checksum=true&disable-100-continue=true",
    );
    let path = |text: &str| Some(PathBuf::from(text));
    let expected =
        TlsFiles { skip_verify: true, ca: path("/ca"), cert: path("/c"), key: path("/k") };
    assert_eq!((found.tls, found.checksum), (expected, false));
}

#[test]
fn errors_name_what_is_wrong_with_an_address() {
    for (bucket, why) in [
        ("https://h.example/vol?sync=1", "unknown option sync"),
        ("https://h.example/vol?disable-checksum=maybe", "disable-checksum=maybe"),
        ("ftp://h.example/vol", "neither http nor https"),
        ("https://user:sesame@h.example/vol", "cannot hold keys"),
        ("https://[bad/vol", "invalid IPv6"),
    ] {
        let error = Service::S3.address(bucket, &|_| None).unwrap_err().to_string();
        assert!(error.contains(why), "{bucket}: {error}");
        assert!(!error.contains("sesame"), "{error}");
    }
}
