//! Registration with kubelet, by a client that connects as kubelet does: its `:authority` is the
//! escaped path of the socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jfs::csi::proto::csi::GetPluginInfoResponse;
use jfs::csi::proto::registration::{PluginInfo, RegistrationStatus};
use prost::Message;

use crate::csi::Node;
use crate::driver::process::get;
use crate::support::command::poll;
use crate::support::fixture::PATIENCE;
use crate::support::timeout::{MOUNTED, within};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The endpoint that the driver reports to kubelet.
const ENDPOINT: &str = "/var/lib/kubelet/plugins/csi.juicefs.com/csi.sock";

/// Encodes an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0, length[0], length[1], kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Calls a method over a new connection, as kubelet does, and returns the response message.
#[track_caller]
fn call(path: &Path, method: &str, message: &impl Message) -> Vec<u8> {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let authority = path.display().to_string().replace('/', "%2F");
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", &authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        headers.push(0);
        for text in [name, value] {
            headers.push(u8::try_from(text.len()).unwrap());
            headers.extend(text.bytes());
        }
    }
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    socket.write_all(&frame(HEADERS, END_HEADERS, 1, &headers)).unwrap();
    let body = [&[0][..], &length, &message].concat();
    socket.write_all(&frame(DATA, END_STREAM, 1, &body)).unwrap();
    let data = response_data(&mut socket);
    assert!(data.len() >= 5, "{method}: no message in the response");
    data[5..].to_vec()
}

/// Returns the content of the data frames until the stream ends.
fn response_data(socket: &mut UnixStream) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).unwrap();
        let (kind, flags, stream) = (head[3], head[4], head[8]);
        assert!(kind != RST_STREAM && kind != GOAWAY, "refused by a frame of type {kind}");
        if kind == DATA {
            data.extend(payload);
        }
        let ends = (kind == DATA || kind == HEADERS) && flags & END_STREAM != 0;
        if stream == 1 && ends {
            return data;
        }
    }
}

/// Starts a driver that registers itself, and returns its registration socket.
fn start_registering() -> (Node, PathBuf) {
    let mut node = Node::start();
    assert!(node.stop());
    fs::create_dir(node.path("registry")).unwrap();
    start_again(&mut node);
    let socket = node.path("registry/csi.juicefs.com-reg.sock");
    (node, socket)
}

fn start_again(node: &mut Node) {
    let registry = node.path("registry").display().to_string();
    node.restart(&["--kubelet-registration-path", ENDPOINT, "--plugin-registry-dir", &registry]);
}

fn notify(socket: &Path, registered: bool, error: &str) {
    let status = RegistrationStatus { plugin_registered: registered, error: error.to_owned() };
    call(socket, "/pluginregistration.Registration/NotifyRegistrationStatus", &status);
}

#[test]
fn kubelet_learns_the_endpoint_and_the_log_shows_its_response() {
    within(MOUNTED, || {
        let (node, socket) = start_registering();
        let info = call(&socket, "/pluginregistration.Registration/GetInfo", &());
        let info = PluginInfo::decode(&*info).unwrap();
        assert_eq!((&*info.r#type, &*info.name), ("CSIPlugin", "csi.juicefs.com"));
        assert_eq!((&*info.endpoint, &*info.supported_versions), (ENDPOINT, &["1.0.0".into()][..]));
        assert!(node.log().contains("kubelet found the driver"), "{}", node.log());
        notify(&socket, true, "");
        assert!(node.log().contains("kubelet registered the driver"), "{}", node.log());
    });
}

#[test]
fn a_driver_that_kubelet_refuses_is_not_ready_until_it_is_registered() {
    within(MOUNTED, || {
        let (node, socket) = start_registering();
        let health = node.address("/healthz");
        assert!(get(health, "/readyz").starts_with("HTTP/1.1 200"));
        notify(&socket, false, "no such node on the planet");
        let page = get(health, "/readyz");
        assert!(page.starts_with("HTTP/1.1 503"), "{page}");
        let refusal = "kubelet refuses to register the driver: no such node on the planet";
        assert!(page.contains(refusal), "{page}");
        assert!(node.log().contains("no such node on the planet"), "{}", node.log());
        // Published volumes keep working, and the liveness probe does not restart the driver.
        assert!(get(health, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(node.is_ready());
        notify(&socket, true, "");
        assert!(get(health, "/readyz").starts_with("HTTP/1.1 200"));
    });
}

/// As when a pod with a registrar sidecar is replaced by one without: at its end, the sidecar removes
/// the file of the socket, whoever listens there.
#[test]
fn a_registrar_of_the_old_pod_neither_stops_the_driver_nor_unregisters_it() {
    within(MOUNTED, || {
        let mut node = Node::start();
        assert!(node.stop());
        fs::create_dir(node.path("registry")).unwrap();
        let socket = node.path("registry/csi.juicefs.com-reg.sock");
        let registrar = UnixListener::bind(&socket).unwrap();
        start_again(&mut node);
        call(&socket, "/pluginregistration.Registration/GetInfo", &());
        fs::remove_file(&socket).unwrap();
        drop(registrar);
        assert!(poll(PATIENCE, || socket.exists()), "{}", node.log());
        call(&socket, "/pluginregistration.Registration/GetInfo", &());
        assert!(node.stop());
        assert!(!socket.exists());
    });
}

#[test]
fn a_client_with_the_socket_path_as_its_authority_is_served() {
    within(MOUNTED, || {
        let node = Node::start();
        let info = call(&node.path("csi.sock"), "/csi.v1.Identity/GetPluginInfo", &());
        let info = GetPluginInfoResponse::decode(&*info).unwrap();
        assert_eq!(info.name, "csi.juicefs.com");
    });
}
