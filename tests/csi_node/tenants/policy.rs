//! What a Secret, a PV and a pod may name, and which flags allow more.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tonic::{Code, Status};

use crate::csi::{Node, Publication};
use crate::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use crate::support::juicefs::Volume;
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, within};

const CANARY: &str = "root:canary:19000:0:99999:7:::";

/// A server that records what it receives and never responds.
struct Listener {
    port: u16,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Listener {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, received) = (socket.local_addr().unwrap().port(), Arc::default());
        let log: Arc<Mutex<Vec<u8>>> = Arc::clone(&received);
        std::thread::spawn(move || {
            for mut stream in socket.incoming().flatten() {
                let log = Arc::clone(&log);
                stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        log.lock().unwrap().extend_from_slice(&buffer[..count]);
                    }
                });
            }
        });
        Self { port, received }
    }

    fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
}

/// Publishes, and checks that the refusal names what was refused and the flag that would allow it.
#[track_caller]
fn assert_refused(node: &Node, publication: &Publication, words: &[&str]) -> Status {
    let status = node.publish(publication).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{words:?}: {status}");
    for word in words {
        assert!(status.message().contains(word), "{word}: {status}");
    }
    assert!(!publication.target.exists());
    status
}

fn with_option(mut publication: Publication, option: &str) -> Publication {
    publication.flags.push(option.to_owned());
    publication
}

/// Returns every way to name a file, each with a word that the refusal must contain.
fn file_keys(node: &Node, port: u16, file: &Path) -> Vec<(&'static str, Publication)> {
    let file = file.display();
    let base = || {
        let url = format!("redis://127.0.0.1:{port}/1?read-timeout=1s&dial-timeout=1s");
        let bucket = format!("http://127.0.0.1:{port}/b");
        let base = node.publication("pvc-1", "web").secret("metaurl", &url);
        base.secret("storage", "s3").secret("bucket", &bucket)
    };
    let mut ways = Vec::new();
    for name in [
        "META_PASSWORD_FILE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CA_BUNDLE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "KRB5_CONFIG",
    ] {
        ways.push((name, base().secret("envs", &format!("{{{name}: {file}}}"))));
    }
    for name in ["kerberos-config-file", "encrypt-rsa-key"] {
        ways.push((name, base().secret("format-options", &format!("{name}={file}"))));
    }
    for name in ["tls-ca-cert-file", "tls-cert-file", "tls-key-file"] {
        let url = format!("rediss://127.0.0.1:{port}/1?{name}={file}");
        ways.push((name, base().secret("metaurl", &url)));
        let url = format!("rediss://127.0.0.1:{port}/1?{}={file}", name.replace('-', "_"));
        ways.push((name, base().secret("metaurl", &url)));
    }
    let tikv = format!("tikv://127.0.0.1:{port}/p?ca={file}&cert={file}&key={file}");
    ways.push(("ca", base().secret("metaurl", &tikv)));
    for name in ["ca-certs", "ssl-cert", "ssl-key"] {
        let bucket = format!("https://127.0.0.1:{port}/b?{name}={file}");
        ways.push((name, base().secret("bucket", &bucket)));
    }
    ways.push(("configs", base().secret("configs", &format!("{{other: {file}}}"))));
    ways
}

#[test]
fn a_secret_reads_no_file_of_the_node_and_learns_of_none() {
    within(MOUNTED, || {
        let node = Node::start_allowing(&["--allow-loopback"]);
        let listener = Listener::start();
        let shadow = node.path("shadow");
        fs::write(&shadow, CANARY).unwrap();
        let there = file_keys(&node, listener.port, &shadow);
        let missing = file_keys(&node, listener.port, &node.path("nothing"));
        for ((name, there), (_, missing)) in there.iter().zip(&missing) {
            let one = assert_refused(&node, there, &[name, "--allow-files-below"]);
            let other = assert_refused(&node, missing, &[name, "--allow-files-below"]);
            assert_eq!(
                one.message(),
                other.message(),
                "the error does not reveal whether a file exists"
            );
        }
        assert_eq!(listener.received(), "", "nothing was sent");
        assert!(!node.log().contains("canary"), "{}", node.log());
    });
}

#[test]
fn files_of_one_directory_are_read_if_a_flag_allows_it() {
    within(MOUNTED, || {
        let folder = tempfile::tempdir().unwrap();
        let allow = format!("--allow-files-below={}", folder.path().display());
        let node = Node::start_allowing(&["--allow-loopback", &allow]);
        let listener = Listener::start();
        let (inside, outside) = (folder.path().join("password"), node.path("shadow"));
        fs::write(&inside, "of the directory\n").unwrap();
        fs::write(&outside, CANARY).unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join("link")).unwrap();
        let ways = |file: &Path| file_keys(&node, listener.port, file);
        let up = folder.path().join("../").join(node.path("shadow").strip_prefix("/").unwrap());
        for file in [&outside, &up] {
            for (name, way) in ways(file) {
                assert_refused(&node, &way, &[name, "--allow-files-below"]);
            }
        }
        // A symbolic link is not followed.
        for (_, way) in ways(&folder.path().join("link")) {
            let status = node.publish(&way).unwrap_err();
            assert!(!status.message().contains("canary"), "{status}");
        }
        assert!(!listener.received().contains("canary"));
        let envs = format!("{{META_PASSWORD_FILE: {}}}", inside.display());
        let url = format!("redis://127.0.0.1:{}/1?read-timeout=1s", listener.port);
        let pv = node.publication("pvc-1", "web").secret("metaurl", &url);
        let pv = pv.secret("storage", "s3").secret("bucket", "http://10.0.0.1/b");
        node.publish(&pv.secret("envs", &envs)).unwrap_err();
        let received = listener.received();
        assert!(received.contains("AUTH") && received.contains("of the directory"), "{received}");
        assert!(!received.contains("canary"), "{received}");
    });
}

#[test]
fn data_and_metadata_are_on_the_network_unless_a_flag_allows_a_directory() {
    within(MOUNTED, || {
        let mut node = Node::start_allowing(&["--allow-loopback"]);
        let flag = "--allow-local-storage";
        let sqlite = format!("sqlite3://{}", node.path("meta.db").display());
        let pv = || node.publication("pvc-1", "web");
        assert_refused(&node, &pv(), &["storage: file", flag]);
        assert_refused(&node, &pv().secret("format-options", "storage=FILE"), &["file", flag]);
        let s3 = |pv: Publication| pv.secret("storage", "s3").secret("bucket", "http://10.0.0.1/b");
        assert_refused(&node, &s3(pv().secret("metaurl", &sqlite)), &["sqlite3", flag]);
        assert_refused(&node, &s3(pv().secret("metaurl", "unix:///run/r.sock")), &["unix", flag]);
        assert_refused(&node, &s3(pv().secret("metaurl", "memkv://x")), &["memkv"]);
        assert_refused(&node, &pv().secret("storage", "mem"), &["storage: mem"]);

        // The settings in a tenant's metadata allow no more than a Secret.
        let go = Volume::format(node.url(), &[]);
        let mut stored = pv().secret("name", "volume");
        stored.secrets.remove("storage");
        stored.secrets.remove("bucket");
        assert_refused(&node, &stored, &["storage: file", flag]);
        drop(go);

        assert!(node.stop());
        let folder = node.path("").display().to_string();
        let folder = folder.trim_end_matches('/');
        node.allow(&["--allow-loopback", &format!("{flag}={folder}")]);
        node.restart(&[]);
        let pv = node.publication("pvc-1", "web").secret("metaurl", &sqlite);
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), "on this node").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let bucket = format!("{}/b", elsewhere.path().display());
        let url = RedisServer::shared().fresh_url();
        let other = node.publication("pvc-2", "other").secret("metaurl", &url);
        assert_refused(&node, &other.clone().secret("bucket", &bucket), &["bucket", flag]);
        let up = format!("{folder}/../{}", elsewhere.path().display());
        assert_refused(&node, &other.secret("bucket", &up), &["bucket", flag]);
        assert!(!Path::new(&bucket).exists());
    });
}

#[test]
fn a_volume_has_no_devices_set_uid_programs_or_cache_directories_of_its_own() {
    within(MOUNTED, || {
        let mut node = Node::start();
        for name in ["dev", "suid"] {
            let flag = format!("--allow-mount-options={name}");
            assert_refused(
                &node,
                &with_option(node.publication("pvc-1", "web"), name),
                &[name, &flag],
            );
            let with_attribute = node.publication("pvc-1", "web").attribute("mountOptions", name);
            assert_refused(&node, &with_attribute, &[name, &flag]);
        }
        let memory = with_option(node.publication("pvc-1", "web"), "cache-dir=memory");
        assert_refused(&node, &memory, &["cache-dir=memory"]);
        let own = node.path("own-cache");
        let option = format!("cache-dir={},free-space-ratio=0.01", own.display());
        let pv = with_option(node.publication("pvc-1", "web"), &option);
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), vec![1; 1 << 20]).unwrap();
        assert!(!own.exists() && node.path("cache").exists());
        for name in ["cache-dir", "free-space-ratio"] {
            assert!(node.log().contains(&format!("mount option {name}")), "{}", node.log());
        }
        node.unpublish("pvc-1", &pv.target).unwrap();
        assert!(node.stop());

        node.restart(&["--allow-mount-options=dev,suid,cache-dir"]);
        let pv = with_option(pv, "dev,suid");
        node.publish(&pv).unwrap();
        assert!(own.exists());
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let target = pv.target.display().to_string();
        let line = table.lines().find(|line| line.contains(&target)).unwrap();
        assert!(!line.contains("nodev") && !line.contains("nosuid"), "{line}");
    });
}

#[test]
fn an_inline_volume_needs_a_flag_and_cannot_choose_its_storage() {
    within(MOUNTED, || {
        let open = ["--allow-loopback", "--allow-local-storage=/"];
        let mut node = Node::start_allowing(&open);
        let inline = |node: &Node| {
            let mut inline = node.publication("csi-1234", "web");
            inline.context.clear();
            inline.attribute("csi.storage.k8s.io/ephemeral", "true")
        };
        assert_refused(&node, &inline(&node), &["inline", "--allow-inline-volumes"]);
        // Kubelet's own form of id counts, whatever the pod claims.
        let name = format!("csi-{}", "0f".repeat(32));
        let hidden = Publication { volume: name, ..inline(&node) };
        assert_refused(
            &node,
            &hidden.attribute("csi.storage.k8s.io/ephemeral", "false"),
            &["--allow-inline-volumes"],
        );
        assert!(node.stop());

        node.allow(&["--allow-loopback", "--allow-local-storage=/", "--allow-inline-volumes"]);
        node.restart(&[]);
        let elsewhere = node.path("elsewhere");
        for option in [
            "storage=file".to_owned(),
            format!("bucket={}", elsewhere.display()),
            format!("cache-dir={}", elsewhere.display()),
            "cache-dir=memory".to_owned(),
            "subdir=/pvc-1".to_owned(),
            "writeback".to_owned(),
            "suid".to_owned(),
            "context=a:b".to_owned(),
        ] {
            let name = option.split('=').next().unwrap();
            let flag = format!("--allow-inline-options={name}");
            let pv = inline(&node).attribute("mountOptions", &format!("ro,{option}"));
            assert_refused(&node, &pv, &[name, &flag]);
        }
        for name in ["subPath", "subdir"] {
            let pv = inline(&node).attribute(name, "pvc-1");
            assert_refused(&node, &pv, &[name, &format!("--allow-inline-options={name}")]);
        }
        assert!(!elsewhere.exists());
        let pv = inline(&node).attribute("mountOptions", "cache-size=100M,noatime");
        node.publish(&pv).unwrap();
        fs::write(pv.target.join("f"), "scratch").unwrap();
        node.unpublish("csi-1234", &pv.target).unwrap();
        assert!(node.stop());

        node.restart(&["--allow-inline-options=subPath"]);
        node.publish(&inline(&node).attribute("subPath", "scratch")).unwrap();
    });
}

#[test]
fn addresses_of_the_node_and_of_its_cloud_are_refused() {
    within(MOUNTED, || {
        let node = Node::start_allowing(&["--allow-loopback"]);
        let pv = || {
            let pv = node.publication("pvc-1", "web").secret("storage", "s3");
            pv.secret("bucket", "http://10.0.0.1/b")
        };
        let flag = "--allow-link-local";
        for url in [
            "redis://169.254.169.254:80/1",
            "rediss://[fe80::1]/1",
            "redis://[::ffff:169.254.169.254]/1",
            "tikv://169.254.169.254:80/p",
            "redis://master,169.254.169.254:80/1",
        ] {
            assert_refused(&node, &pv().secret("metaurl", url), &[flag]);
        }
        let at = |bucket: &str| {
            let url = RedisServer::shared().fresh_url();
            pv().secret("metaurl", &url).secret("bucket", bucket)
        };
        assert_refused(&node, &at("http://169.254.169.254/b"), &[flag]);
        assert_refused(&node, &at("http://[fd00:ec2::254]/b"), &[flag]);
        let proxied = at("http://10.0.0.1/b").secret("envs", "{HTTP_PROXY: 'http://169.254.1.1'}");
        assert_refused(&node, &proxied, &[flag]);

        let strict = Node::start_allowing(&[]);
        let listener = Listener::start();
        for host in ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1"] {
            let url = format!("redis://{host}:{}/1", listener.port);
            let pv = strict.publication("pvc-1", "web").secret("metaurl", &url);
            let pv = pv.secret("storage", "s3").secret("bucket", "http://10.0.0.1/b");
            assert_refused(&strict, &pv, &["--allow-loopback"]);
        }
        assert_eq!(listener.received(), "");
    });
}

#[test]
fn the_drivers_own_keys_are_not_used_without_a_flag() {
    within(MOUNTED, || {
        let mut node = Node::start_allowing(&["--allow-loopback"]);
        let server = S3Server::start();
        let flag = "--allow-instance-credentials";
        let pv = |node: &Node| {
            let pv = node.publication("pvc-1", "web").secret("storage", "s3");
            pv.secret("bucket", &server.bucket("bucket"))
        };
        let asked = pv(&node).secret("envs", "{JFS_INSTANCE_CREDENTIALS: 'true'}");
        assert_refused(&node, &asked, &["JFS_INSTANCE_CREDENTIALS", flag]);
        assert!(node.stop());

        node.environment = vec![
            ("AWS_ACCESS_KEY_ID".to_owned(), ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), SECRET_KEY.to_owned()),
        ];
        node.restart(&[]);
        node.publish(&pv(&node)).unwrap_err();
        let seen = server.seen();
        assert!(!seen.is_empty() && seen.iter().all(|one| one.header("authorization").is_empty()));
        assert!(node.stop());
        node.restart(&[flag]);
        node.publish(&pv(&node)).unwrap();
        assert!(server.seen().iter().any(|one| one.header("authorization").contains(ACCESS_KEY)));
    });
}

#[test]
fn a_volume_path_has_no_parent_or_reserved_directory() {
    within(MOUNTED, || {
        let node = Node::start();
        for path in ["../x", "a/../../b", ".jfs-csi/volumes", "/.trash", ".snapshots/x"] {
            let attribute = node.publication("pvc-1", "web").attribute("subPath", path);
            let option = with_option(node.publication("pvc-1", "web"), &format!("subdir={path}"));
            for mut pv in [attribute, option] {
                if pv.flags.is_empty() {
                    pv.context.remove("subdir");
                } else {
                    pv.context.clear();
                }
                let status = node.publish(&pv).unwrap_err();
                assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status}");
            }
        }
    });
}
