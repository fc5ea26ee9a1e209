//! Limits on server responses. The SDK reads listings and errors into memory whole, however long
//! they are, so they are limited here, as the bytes arrive. Objects are limited by their reader.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Response, Uri};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// Maximum number of keys that one request can list.
pub const PAGE: usize = 1000;

/// An error or another short response: code, message, names.
const NOTE: u64 = 256 << 10;

/// An entry of a listing: a key of 1024 bytes, all escaped, and its properties.
const ENTRY: u64 = 4 << 10;

/// Tags of an entry of a listing, opening and closing, and more than any server sends.
const TAGS: u64 = 64;

type Cause = Box<dyn StdError + Send + Sync>;

/// What a response may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseLimit {
    /// No limit here: the reader limits it.
    Object,
    /// Limits on bytes and on tags: each tag becomes a value in memory larger than itself.
    Text { bytes: u64, tags: u64 },
}

impl ResponseLimit {
    /// Returns the limit of the response to a request.
    pub fn of<B>(method: &Method, uri: &Uri, answer: &Response<B>) -> Self {
        let says =
            |what: &str| uri.query().is_some_and(|query| query.split('&').any(|it| it == what));
        if method == Method::HEAD {
            // It announces the length of the object, but has no body.
            return Self::Object;
        }
        if !answer.status().is_success() {
            return Self::note();
        }
        if says("x-id=GetObject") {
            return Self::Object;
        }
        if says("list-type=2") {
            let keys = PAGE as u64;
            return Self::Text { bytes: NOTE + keys * ENTRY, tags: TAGS + keys * TAGS };
        }
        Self::note()
    }

    fn note() -> Self {
        Self::Text { bytes: NOTE, tags: TAGS * TAGS }
    }

    /// Limits the body of a response; the permit is held until it ends. Refuses a response that
    /// announces a longer body.
    pub fn bind<B>(
        self,
        answer: Response<B>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Response<LimitedBody<B>>, Cause> {
        let promised = answer.headers().get(CONTENT_LENGTH);
        let promised = promised.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if let (Self::Text { bytes, .. }, Some(promised)) = (self, promised)
            && promised > bytes
        {
            return Err(format!(
                "the response announces {promised} bytes, more than the limit of {bytes}"
            )
            .into());
        }
        Ok(answer.map(|inner| LimitedBody { inner, left: self, _permit: permit }))
    }
}

/// A body that fails when it exceeds its limit.
pub struct LimitedBody<B> {
    inner: B,
    left: ResponseLimit,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<B> LimitedBody<B> {
    fn count(&mut self, piece: &[u8]) -> Result<(), Cause> {
        let ResponseLimit::Text { bytes, tags } = &mut self.left else { return Ok(()) };
        let found = piece.iter().fold(0, |found, byte| found + u64::from(*byte == b'<'));
        match (bytes.checked_sub(piece.len() as u64), tags.checked_sub(found)) {
            (Some(fewer), Some(rest)) => {
                (*bytes, *tags) = (fewer, rest);
                Ok(())
            }
            _ => Err("the response is longer than any valid one".into()),
        }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Cause>,
{
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => frame,
        };
        let counted = frame.data_ref().map_or(Ok(()), |piece| self.count(piece));
        Poll::Ready(Some(counted.map(|()| frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(query: &str, status: u16) -> ResponseLimit {
        let uri: Uri = format!("http://h/bucket/key?{query}").parse().unwrap();
        ResponseLimit::of(&Method::GET, &uri, &Response::builder().status(status).body(()).unwrap())
    }

    fn answer(length: u64) -> Response<()> {
        Response::builder().header(CONTENT_LENGTH, length).body(()).unwrap()
    }

    #[test]
    fn only_an_existing_object_is_limited_by_its_reader() {
        assert_eq!(bound("x-id=GetObject", 200), ResponseLimit::Object);
        assert_eq!(bound("x-id=GetObject", 206), ResponseLimit::Object);
        for (query, status) in [("x-id=GetObject", 403), ("x-id=PutObject", 200), ("", 200)] {
            assert_eq!(bound(query, status), ResponseLimit::note(), "{query} {status}");
        }
        assert!(
            matches!(bound("list-type=2&prefix=a", 200), ResponseLimit::Text { bytes, .. } if bytes > NOTE)
        );
        assert_eq!(bound("list-type=2&prefix=a", 500), ResponseLimit::note());
    }

    #[test]
    fn a_response_that_announces_too_many_bytes_is_refused() {
        assert!(ResponseLimit::note().bind(answer(NOTE), None).is_ok());
        assert!(ResponseLimit::note().bind(answer(NOTE + 1), None).is_err());
        assert!(ResponseLimit::Object.bind(answer(u64::MAX), None).is_ok());
    }

    #[test]
    fn many_tags_in_few_bytes_exceed_the_limit() {
        let mut body = LimitedBody { inner: (), left: bound("list-type=2", 200), _permit: None };
        let entry = b"<Contents/>".repeat(10_000);
        let taken = (0..100).take_while(|_| body.count(&entry).is_ok()).count();
        assert!((1..10).contains(&taken), "{taken}");
    }
}
