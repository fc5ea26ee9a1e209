//! TLS: both sides present a certificate, and errors say why one was rejected.

use std::path::{Path, PathBuf};
use std::process::Command;

use jfs::Error;
use jfs::meta::engine::connect;
use jfs::meta::{Meta, Options, Registration};
use tempfile::TempDir;

use crate::support::juicefs;
use crate::support::tikv::TikvServer;
use crate::support::tree::Tree;
use crate::support::volume::setting;

/// A certificate authority, and a certificate that it has signed for the address of the servers.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let authority = Self { folder: TempDir::new().expect("a folder") };
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca",
        );
        authority.sign("good", "IP:127.0.0.1");
        authority
    }

    fn sign(&self, name: &str, alternative: &str) {
        std::fs::write(self.path("extensions"), format!("subjectAltName={alternative}\n"))
            .expect("a file");
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.request"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.request -CA ca -CAkey ca.key -CAcreateserial -days 2 \
             -extfile extensions -out {name}"
        ));
    }

    fn openssl(&self, words: &str) {
        let made = Command::new("openssl")
            .args(words.split_whitespace())
            .current_dir(self.folder.path())
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts servers that present a certificate and require one of this authority.
    fn servers(&self, certificate: &str) -> TikvServer {
        let key = format!("{certificate}.key");
        let [ca, cert, key] = ["ca", certificate, &key].map(|name| text(&self.path(name)));
        TikvServer::start(&["-ca", &ca, "-cert", &cert, "-key", &key])
    }

    /// Returns the options of an address that trusts this authority.
    fn trusting(&self, with: &Self) -> String {
        let [ca, cert, key] =
            [self.path("ca"), with.path("good"), with.path("good.key")].map(|path| text(&path));
        format!("?ca={ca}&cert={cert}&key={key}")
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

async fn connect_error(url: &str) -> String {
    match connect(url).await {
        Ok(_) => panic!("{url} opens"),
        Err(error @ Error::Unreachable { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_used_over_tls_by_both_clients() {
    let authority = Authority::new();
    let server = authority.servers("good");
    let url = format!("{}{}&verify-cn=good", server.fresh_url(), authority.trusting(&authority));
    let options = Options { no_background_jobs: true, ..Options::default() };
    let meta = Meta::attach(&url, options).await.expect("connect");
    meta.init(setting(), false).await.expect("format");
    meta.load().await.expect("load");
    meta.start(Registration::New).await.expect("session");
    meta.dir("d").await;
    meta.file("d/f").await;
    assert_eq!(meta.names("d").await, ["f"]);
    meta.close().await.expect("close");
    let dumped = tokio::task::spawn_blocking(move || juicefs::juicefs(&["dump", &url]).ok());
    let dumped = juicefs::parse_json_output(&dumped.await.expect("no panic").stdout);
    assert_eq!(dumped["FSTree"]["entries"]["d"]["entries"]["f"]["attr"]["type"], "regular");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_authority_is_not_trusted() {
    let (one, other) = (Authority::new(), Authority::new());
    let server = one.servers("good");
    let error = connect_error(&format!("{}{}", server.fresh_url(), other.trusting(&one))).await;
    assert!(error.contains("TLS: ") && error.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_certificate_for_another_name_is_not_trusted() {
    let authority = Authority::new();
    authority.sign("elsewhere", "DNS:elsewhere.example");
    let server = authority.servers("elsewhere");
    let error =
        connect_error(&format!("{}{}", server.fresh_url(), authority.trusting(&authority))).await;
    assert!(error.contains("TLS: ") && error.contains("not valid for name"), "{error}");
}

/// The server does not know the authority that signed our certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_the_server_rejects_is_an_error() {
    let (one, other) = (Authority::new(), Authority::new());
    let server = one.servers("good");
    let error = connect_error(&format!("{}{}", server.fresh_url(), one.trusting(&other))).await;
    assert!(error.contains("TLS: "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_not_reported_as_unreachable() {
    let authority = Authority::new();
    let url = TikvServer::shared().fresh_url();
    let error = connect_error(&format!("{url}{}", authority.trusting(&authority))).await;
    assert!(error.contains("TLS: "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_tls_refuses_connections_without() {
    let authority = Authority::new();
    let error = connect_error(&authority.servers("good").fresh_url()).await;
    assert!(error.contains("does not respond like a PD server"), "{error}");
}
