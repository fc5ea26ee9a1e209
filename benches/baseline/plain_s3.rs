//! The baseline for S3: the SDK's client, with nothing around it.

use std::hint::black_box;
use std::sync::Arc;

use aws_credential_types::Credentials;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Config, Region, RequestChecksumCalculation};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use jfs::object::Spec;

/// Size of a block.
const BLOCK: usize = 4 << 20;

/// What to fetch.
pub enum Plan {
    /// Every object, this many at once.
    Blocks(usize),
    /// Ranges of the objects laid end to end, one after the other.
    Ranges(Vec<usize>, usize),
}

/// Returns a client for the server of the bucket.
pub fn client(spec: &Spec, access: &str, secret: &str) -> Client {
    let endpoint = spec.bucket.rsplit_once('/').map_or(spec.bucket.as_str(), |(host, _)| host);
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .http_client(http)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .credentials_provider(Credentials::new(access, secret, None, None, "bench"))
        .build();
    Client::from_conf(config)
}

pub async fn read(client: Client, bucket: String, keys: Arc<[String]>, plan: Plan) {
    match plan {
        Plan::Blocks(at_once) => {
            let fetches: Vec<_> =
                keys.iter().map(|key| fetch(&client, &bucket, key, None).boxed()).collect();
            stream::iter(fetches).buffer_unordered(at_once).for_each(drop_body).await;
        }
        Plan::Ranges(offsets, len) => {
            for offset in offsets {
                let (index, at) = (offset / BLOCK, offset % BLOCK);
                let key = &keys[index];
                let range = format!("bytes={at}-{}", at + len - 1);
                drop_body(fetch(&client, &bucket, key, Some(range)).await).await;
            }
        }
    }
}

/// Uploads bodies, this many at once.
pub async fn write(client: Client, bucket: String, bodies: Arc<[Bytes]>, at_once: usize) {
    let mut puts = Vec::new();
    for (index, body) in bodies.iter().enumerate() {
        let put = client.put_object().bucket(&bucket).key(format!("plain/{index}"));
        let put = put.body(ByteStream::from(body.clone())).customize().disable_payload_signing();
        puts.push(async move { assert!(put.send().await.is_ok(), "the put failed") }.boxed());
    }
    stream::iter(puts).buffer_unordered(at_once).for_each(|()| async {}).await;
}

async fn fetch(client: &Client, bucket: &str, key: &str, range: Option<String>) -> Option<Bytes> {
    let answer = client.get_object().bucket(bucket).key(key).set_range(range).send().await.ok()?;
    Some(answer.body.collect().await.ok()?.into_bytes())
}

async fn drop_body(body: Option<Bytes>) {
    assert!(black_box(body).is_some(), "the get failed");
}
