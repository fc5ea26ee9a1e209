//! Path patterns, with a Kubernetes API that has one claim and one node.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::Code;

use crate::driver::{Driver, FileSystem, MIB, volume};

const CLAIM: &str = r#"{"metadata": {"labels": {"team": "blue"}, "annotations": {
    "path": "a/b", "volume.kubernetes.io/selected-node": "node-1"}}}"#;
const NODE: &str = r#"{"metadata": {"labels": {"zone": "east"}}}"#;

/// Serves both. Returns its address and the list of requested paths.
async fn api() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requested: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&requested);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let (status, body) = match path.as_str() {
                "/api/v1/namespaces/web/persistentvolumeclaims/data" => ("200 OK", CLAIM),
                "/api/v1/nodes/node-1" => ("200 OK", NODE),
                _ => ("404 Not Found", "{}"),
            };
            log.lock().unwrap().push(path);
            let response = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    (address, requested)
}

#[tokio::test]
async fn labels_annotations_and_nodes_are_requested_once_each() {
    let (address, requested) = api().await;
    let (driver, file_system) =
        (Driver::start_with(&["--kube-api", &address]).await, FileSystem::new());
    let mut request = volume(&file_system, "one", MIB);
    for (key, value) in [
        (
            "pathPattern",
            "${.node.labels.zone}/${.node.name}/${.pvc.labels.team}-${.pvc.name}/${.pvc.annotations.path}",
        ),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "web"),
    ] {
        request.parameters.insert(key.to_owned(), value.to_owned());
    }
    let created = driver.create(request.clone()).await.unwrap();
    assert_eq!(created.volume_context["subPath"], "east/node-1/blue-data/a/b");
    assert!(file_system.meta().await.resolve("east/node-1/blue-data/a/b").await.is_ok());
    assert_eq!(requested.lock().unwrap().len(), 2);

    request.name = "two".to_owned();
    request.parameters.insert("pathPattern".to_owned(), "${.pvc.labels.colour}".to_owned());
    let error = driver.create(request.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains(".pvc.labels.colour"), "{error}");
    request.parameters.insert("csi.storage.k8s.io/pvc/name".to_owned(), "none".to_owned());
    assert_eq!(driver.create(request).await.unwrap_err().code(), Code::InvalidArgument);
}
