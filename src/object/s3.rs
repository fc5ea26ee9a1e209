//! Buckets of S3 and of compatible services.
//!
//! Bodies are not signed and carry no checksum of the SDK: they are protected by the `Crc32c` that
//! JuiceFS stores with an object. The SDK does not retry; [`Retry`](super::retry::Retry) does.

mod address;
mod client;
mod connector;
mod credentials;
mod failure;
mod http;
mod proxy;
mod response_limit;
mod tunnel;

use std::ops::Range;
use std::time::SystemTime;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    BucketLocationConstraint, CreateBucketConfiguration, EncodingType, ObjectStorageClass,
    StorageClass,
};
use aws_smithy_types::DateTime;
use bytes::Bytes;

use self::address::Address;
pub use self::address::Service;
use self::client::Connection;
use self::failure::Failure;
pub use self::failure::without_request_id;
use self::response_limit::PAGE;
use super::get_request::{BodyError, GetRequest, ObjectBody};
use super::tier::Tiers;
use super::{Object, ObjectStore, Spec};
use crate::crc32c::crc32c;
use crate::error::{Error, Result};

/// User metadata with the checksum of a body: a decimal CRC-32C.
const CHECKSUM: &str = "Crc32c";

/// Consecutive pages without a key that a listing may have: servers skip deleted objects, but not
/// forever.
const EMPTY_PAGES: usize = 100;

/// One bucket.
pub struct S3Store {
    place: String,
    address: Address,
    connection: Connection,
    tiers: Tiers,
}

impl S3Store {
    pub fn new(service: Service, spec: &Spec) -> Result<Self> {
        let env = |name: &str| {
            let own = spec.env.get(name).map(|value| value.expose().to_owned());
            own.or_else(|| spec.policy.process_variable(name)).filter(|value| !value.is_empty())
        };
        let address = service.address(&spec.bucket, &env)?;
        let connection = Connection::new(service, spec, &address, &env)?;
        let host = address.endpoint.as_deref().and_then(|url| url.split_once("://"));
        let place = match host {
            Some((_, host)) => format!("{}://{host}/{}/", service.name(), address.bucket),
            None => format!("{}://{}/", service.name(), address.bucket),
        };
        Ok(Self { place, address, connection, tiers: Tiers::new(&spec.tiers)? })
    }

    async fn client(&self) -> Result<&Client> {
        self.connection.client(&self.address, &self.place).await
    }

    fn failed(&self, action: &'static str, key: &str, cause: impl Into<String>) -> Error {
        let (place, key) = (self.place.clone(), key.to_owned());
        Error::Storage { place, action, key, cause: cause.into() }
    }

    async fn fetch(&self, key: &str, wanted: &GetRequest) -> Result<Option<Bytes>> {
        let range = wanted.range.as_ref();
        let mut request = self.client().await?.get_object().bucket(&self.address.bucket).key(key);
        if let Some(range) = range {
            request = request.range(format!("bytes={}-{}", range.start, range.end - 1));
        }
        let answer = match request.send().await.map_err(|error| Failure::of(&error)) {
            Ok(answer) => answer,
            Err(failure) if failure.code == "NoSuchKey" => return Err(Error::NotFound),
            // The range begins after the end of the object.
            Err(failure) if range.is_some() && failure.status == 416 => return Ok(None),
            Err(failure) => return Err(failure.into_error(&self.place, "get", key)),
        };
        let is_whole = answer.content_range().is_none();
        let checksum = answer.metadata().and_then(|of| of.get(&CHECKSUM.to_lowercase())).cloned();
        // A server may ignore the range and send the whole object.
        let limit = if is_whole { wanted.max_size } else { wanted.max_length() };
        let body = self.collect(key, answer, limit).await?;
        let Some(range) = range else {
            self.verify(key, &body, checksum.as_deref())?;
            return Ok(Some(body));
        };
        Ok(Some(if is_whole { super::part(&body, range) } else { body }))
    }

    /// Collects the body in one buffer, sized by the announced length; at most `limit` bytes.
    async fn collect(&self, key: &str, answer: GetObjectOutput, limit: u64) -> Result<Bytes> {
        let promised = answer.content_length().and_then(|length| u64::try_from(length).ok());
        let refuse = |error: BodyError| error.into_error(&self.place, key);
        let mut body = ObjectBody::new(limit, promised).map_err(refuse)?;
        let mut stream = answer.body;
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| self.failed("get", key, failure::causes(&error)))?;
            body.extend(&piece).map_err(refuse)?;
        }
        match promised {
            Some(promised) if promised != body.len() as u64 => {
                let cause = format!("received {} of {promised} bytes", body.len());
                Err(self.failed("get", key, cause))
            }
            _ => Ok(body.freeze()),
        }
    }

    fn verify(&self, key: &str, body: &[u8], checksum: Option<&str>) -> Result<()> {
        let Some(expected) = checksum.filter(|_| self.address.checksum) else { return Ok(()) };
        let found = crc32c(body).to_string();
        if found == expected {
            return Ok(());
        }
        let cause = format!(
            "its checksum is {found}, not {expected}: it was damaged in transit or in the store"
        );
        Err(self.failed("get", key, cause))
    }

    /// Returns the failure if the bucket itself is missing: a HEAD response has no body that says
    /// so.
    async fn bucket_is_missing(&self) -> Result<Option<Failure>> {
        let request = self.client().await?.head_bucket().bucket(&self.address.bucket);
        let failure = request.send().await.err().map(|error| Failure::of(&error));
        Ok(failure.filter(|failure| failure.status == 404))
    }

    async fn page(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
        token: Option<String>,
    ) -> Result<(Vec<Object>, Option<String>)> {
        let failed = |cause: String| self.failed("list", prefix, cause);
        let keys = i32::try_from(limit.min(PAGE)).map_err(|error| failed(error.to_string()))?;
        let answer = self
            .client()
            .await?
            .list_objects_v2()
            .bucket(&self.address.bucket)
            .prefix(prefix)
            .set_start_after(Some(after).filter(|after| !after.is_empty()).map(str::to_owned))
            .max_keys(keys)
            .encoding_type(EncodingType::Url)
            .set_continuation_token(token)
            .send()
            .await
            .map_err(|error| Failure::of(&error).into_error(&self.place, "list", prefix))?;
        let encoded = answer.encoding_type() == Some(&EncodingType::Url);
        let more = answer.is_truncated().unwrap_or(false);
        let next = answer.next_continuation_token().filter(|_| more).map(str::to_owned);
        if more && next.is_none() {
            return Err(failed(
                "the listing is truncated but has no continuation token".to_owned(),
            ));
        }
        if answer.contents().len() > limit.min(PAGE) {
            let count = answer.contents().len();
            return Err(failed(format!(
                "the store listed {count} keys, but {keys} were requested"
            )));
        }
        let mut found = Vec::with_capacity(answer.contents().len());
        for object in answer.contents() {
            let raw = object.key().unwrap_or_default();
            let key = if encoded { unescape(raw) } else { Some(raw.to_owned()) };
            let key = key.ok_or_else(|| failed(format!("cannot decode key {raw:?}")))?;
            if !key.starts_with(prefix) || key.as_str() <= after {
                return Err(failed(format!("the store listed {key:?} after {after:?}")));
            }
            let size = u64::try_from(object.size().unwrap_or_default()).unwrap_or_default();
            let class = object.storage_class().map(ObjectStorageClass::as_str);
            let object = Object::new(key, size, time(object.last_modified()));
            found.push(Object { class: class_or_default(class), ..object });
        }
        Ok((found, next))
    }
}

#[async_trait]
impl ObjectStore for S3Store {
    fn place(&self) -> &str {
        &self.place
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        if request.range.as_ref().is_some_and(Range::is_empty) {
            // An empty range cannot be requested, but a missing object is still an error.
            return self.head(key).await.map(|_| Bytes::new());
        }
        Ok(self.fetch(key, &request).await?.unwrap_or_default())
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        let tier = self.tiers.tier(tier);
        let checksum = self.address.checksum.then(|| crc32c(&body).to_string());
        let mut request = self
            .client()
            .await?
            .put_object()
            .bucket(&self.address.bucket)
            .key(key)
            .content_type("application/octet-stream")
            .set_tagging(tier.tagging.clone())
            .set_storage_class(tier.class.as_deref().map(StorageClass::from))
            .body(ByteStream::from(body));
        if let Some(checksum) = checksum {
            request = request.metadata(CHECKSUM, checksum);
        }
        let done = request.customize().disable_payload_signing().send().await;
        done.map(drop).map_err(|error| Failure::of(&error).into_error(&self.place, "put", key))
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let request = self.client().await?.delete_object().bucket(&self.address.bucket).key(key);
        match request.send().await.map_err(|error| Failure::of(&error)) {
            Ok(_) => Ok(()),
            Err(failure) if failure.code == "NoSuchKey" => Ok(()),
            Err(failure) => Err(failure.into_error(&self.place, "delete", key)),
        }
    }

    async fn head(&self, key: &str) -> Result<Object> {
        let request = self.client().await?.head_object().bucket(&self.address.bucket).key(key);
        match request.send().await.map_err(|error| Failure::of(&error)) {
            Ok(found) => Ok(Object {
                key: key.to_owned(),
                size: u64::try_from(found.content_length().unwrap_or_default()).unwrap_or_default(),
                modified: time(found.last_modified()),
                class: class_or_default(found.storage_class().map(StorageClass::as_str)),
                restore: found.restore().unwrap_or_default().to_owned(),
            }),
            Err(failure) if failure.status == 404 => match self.bucket_is_missing().await? {
                Some(failure) => Err(failure.into_error(&self.place, "head", key)),
                None => Err(Error::NotFound),
            },
            Err(failure) => Err(failure.into_error(&self.place, "head", key)),
        }
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        // MinIO rejects a marker that does not begin with the prefix.
        let after = match after.strip_prefix(prefix) {
            Some(_) => after,
            None if after > prefix => return Ok(Vec::new()),
            None => "",
        };
        let mut found: Vec<Object> = Vec::new();
        let (mut token, mut empty) = (None, 0);
        if limit == 0 {
            return Ok(found);
        }
        loop {
            let asked = token.clone();
            let (page, next) = self.page(prefix, after, limit - found.len(), token).await?;
            let listed = found.last().into_iter().chain(&page);
            if let Some((one, two)) =
                listed.clone().zip(listed.skip(1)).find(|(one, two)| one.key >= two.key)
            {
                let cause = format!("{:?} was listed before {:?}", one.key, two.key);
                return Err(self.failed("list", prefix, cause));
            }
            empty = if page.is_empty() { empty + 1 } else { 0 };
            found.extend(page);
            if next.is_none() || found.len() >= limit {
                return Ok(found);
            }
            if next == asked || empty > EMPTY_PAGES {
                let cause = "the listing makes no progress".to_owned();
                return Err(self.failed("list", prefix, cause));
            }
            token = next;
        }
    }

    async fn create(&self) -> Result<()> {
        if self.page("", "", 1, None).await.is_ok() {
            return Ok(());
        }
        let region = self.connection.region(&self.address, &self.place).await?;
        // AWS rejects its first region as a location constraint.
        let place = (region != address::DEFAULT_REGION).then(|| {
            let constraint = BucketLocationConstraint::from(region);
            CreateBucketConfiguration::builder().location_constraint(constraint).build()
        });
        let request = self.client().await?.create_bucket().bucket(&self.address.bucket);
        match request.set_create_bucket_configuration(place).send().await {
            Ok(_) => Ok(()),
            Err(error) => match Failure::of(&error) {
                Failure { code, .. }
                    if matches!(
                        code.as_str(),
                        "BucketAlreadyExists" | "BucketAlreadyOwnedByYou"
                    ) =>
                {
                    Ok(())
                }
                failure => Err(failure.into_error(&self.place, "create", &self.address.bucket)),
            },
        }
    }

    fn verifies_whole(&self) -> bool {
        self.address.checksum
    }
}

/// S3 omits the class if it is the default.
fn class_or_default(class: Option<&str>) -> String {
    class.filter(|class| !class.is_empty()).unwrap_or("STANDARD").to_owned()
}

fn time(of: Option<&DateTime>) -> SystemTime {
    of.and_then(|time| SystemTime::try_from(*time).ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Decodes a key of a listing, which is form-encoded: a plus is a space.
fn unescape(key: &str) -> Option<String> {
    percent_decoded(&key.replace('+', " "))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
                u8::try_from(value).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_listing_are_form_decoded() {
        assert_eq!(unescape("a%2Fb+c%C3%A4%2B").as_deref(), Some("a/b c\u{e4}+"));
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(unescape(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_checksum_matches_juicefs() {
        // The published check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
