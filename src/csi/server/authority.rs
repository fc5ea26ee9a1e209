//! Unix-socket connections whose HTTP/2 requests may have any `:authority`.
//!
//! The authority has no meaning over a unix socket, and clients send various values: kubelet sends
//! the URL-encoded path of the socket, which the HTTP/2 library rejects as malformed before any
//! handler runs. So this module replaces the authority by `localhost`: it decodes and re-encodes
//! header frames, and passes everything else on unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// The authority that the server sees.
const AUTHORITY: &[u8] = b"localhost";
/// Length of the client's connection preface.
const PREFACE: usize = 24;
/// Length of a frame header: length, type, flags and stream.
const FRAME_HEAD: usize = 9;
/// The longest frame: the HTTP/2 default, which the server does not raise.
const MAX_FRAME: usize = 16 << 10;
/// Longest encoded headers of one request, over all its frames.
const MAX_HEADERS: usize = 64 << 10;
/// Longest decoded headers of one request: with a header table, few bytes can stand for many.
const MAX_DECODED: usize = 256 << 10;
/// The size of the header table: the HTTP/2 default, which the server does not raise.
const MAX_TABLE: usize = 4096;
/// Bytes to read at a time.
const READ: usize = 16 << 10;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Length of the priority fields.
const PRIORITY_LEN: usize = 5;

/// A connection with the authority of each request replaced.
pub struct AnyAuthority {
    stream: UnixStream,
    rewriter: Rewriter,
    scratch: Box<[u8]>,
}

impl AnyAuthority {
    pub fn new(stream: UnixStream) -> Self {
        let scratch = vec![0; READ].into_boxed_slice();
        Self { stream, rewriter: Rewriter::default(), scratch }
    }
}

impl Connected for AnyAuthority {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for AnyAuthority {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, rewriter, scratch } = &mut *self;
        while rewriter.output.is_empty() {
            let mut read = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            rewriter.take(read.filled())?;
        }
        let count = into.remaining().min(rewriter.output.len());
        into.put_slice(&rewriter.output[..count]);
        rewriter.output.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AnyAuthority {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Rewrites the bytes of a client.
struct Rewriter {
    input: BytesMut,
    output: BytesMut,
    /// Bytes to pass on unchanged.
    passing: usize,
    decoder: Decoder<'static>,
    /// Headers whose last frame has not arrived.
    partial: Option<Partial>,
}

#[derive(Default)]
struct Partial {
    flags: u8,
    stream: [u8; 4],
    priority: Bytes,
    block: BytesMut,
}

impl Default for Rewriter {
    fn default() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(MAX_TABLE);
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Self { input, output, passing: PREFACE, decoder, partial: None }
    }
}

impl Rewriter {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.extend_from_slice(bytes);
        loop {
            let passing = self.passing.min(self.input.len());
            self.output.put(self.input.split_to(passing));
            self.passing -= passing;
            if self.input.len() < FRAME_HEAD {
                return Ok(());
            }
            let head = &self.input[..FRAME_HEAD];
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags) = (head[3], head[4]);
            let stream = [head[5], head[6], head[7], head[8]];
            if length > MAX_FRAME {
                return Err(broken("frame too long"));
            }
            if kind != HEADERS && kind != CONTINUATION {
                self.passing = FRAME_HEAD + length;
                continue;
            }
            if self.input.len() < FRAME_HEAD + length {
                return Ok(());
            }
            self.input.advance(FRAME_HEAD);
            let payload = self.input.split_to(length).freeze();
            self.headers(kind, flags, stream, payload)?;
        }
    }

    fn headers(&mut self, kind: u8, flags: u8, stream: [u8; 4], payload: Bytes) -> io::Result<()> {
        let mut partial = match (kind, self.partial.take()) {
            (HEADERS, None) => Partial { flags, stream, ..Partial::default() },
            (CONTINUATION, Some(partial)) if partial.stream == stream => partial,
            _ => return Err(broken("header frames out of order")),
        };
        let mut block = payload;
        if kind == HEADERS {
            if flags & PADDED != 0 {
                let padding = if block.is_empty() { 0 } else { usize::from(block.get_u8()) };
                let left = block.len().checked_sub(padding);
                block.truncate(left.ok_or_else(|| broken("padding longer than the frame"))?);
            }
            if flags & PRIORITY != 0 {
                if block.len() < PRIORITY_LEN {
                    return Err(broken("priority fields cut off"));
                }
                partial.priority = block.split_to(PRIORITY_LEN);
            }
        }
        if partial.block.len() + block.len() > MAX_HEADERS {
            return Err(broken("headers too long"));
        }
        partial.block.extend_from_slice(&block);
        if flags & END_HEADERS == 0 {
            self.partial = Some(partial);
            return Ok(());
        }
        self.write(partial)
    }

    /// Writes headers without a header table, unchanged except for the authority.
    fn write(&mut self, partial: Partial) -> io::Result<()> {
        let Partial { flags, stream, priority, block } = partial;
        let mut written = BytesMut::from(&priority[..]);
        let mut too_long = false;
        let decoded = self.decoder.decode_with_cb(&block, |name, value| {
            too_long |= written.len() + name.len() + value.len() > MAX_DECODED;
            if !too_long {
                let value = if *name == *b":authority" { AUTHORITY } else { &*value };
                // A literal without indexing, with a new name.
                written.put_u8(0);
                put_text(&mut written, &name);
                put_text(&mut written, value);
            }
        });
        decoded.map_err(|_| broken("headers cannot be decoded"))?;
        if too_long {
            return Err(broken("headers too long"));
        }
        let mut kind = HEADERS;
        let mut flags = flags & !PADDED & !END_HEADERS;
        loop {
            let part = written.split_to(written.len().min(MAX_FRAME));
            if written.is_empty() {
                flags |= END_HEADERS;
            }
            self.output.put_uint(part.len() as u64, 3);
            self.output.put_u8(kind);
            self.output.put_u8(flags);
            self.output.put_slice(&stream);
            self.output.put(part);
            if written.is_empty() {
                return Ok(());
            }
            (kind, flags) = (CONTINUATION, 0);
        }
    }
}

/// Writes an HPACK string: its length, then its bytes without Huffman coding.
fn put_text(into: &mut BytesMut, text: &[u8]) {
    /// The largest value of the length's 7-bit prefix.
    const FIRST: usize = 0x7f;
    let mut rest = text.len();
    if rest < FIRST {
        into.put_uint(rest as u64, 1);
    } else {
        into.put_uint(FIRST as u64, 1);
        rest -= FIRST;
        while rest >= 0x80 {
            into.put_uint((rest % 0x80 + 0x80) as u64, 1);
            rest /= 0x80;
        }
        into.put_uint(rest as u64, 1);
    }
    into.put_slice(text);
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = BytesMut::new();
        frame.put_uint(payload.len() as u64, 3);
        frame.put_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.put_slice(payload);
        frame.to_vec()
    }

    /// Returns type, flags and payload of each frame after the preface.
    fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
        let mut found = Vec::new();
        bytes = &bytes[PREFACE..];
        while !bytes.is_empty() {
            let length = usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
            let (frame, rest) = bytes.split_at(FRAME_HEAD + length);
            found.push((frame[3], frame[4], frame[FRAME_HEAD..].to_vec()));
            bytes = rest;
        }
        found
    }

    /// Feeds bytes in parts and returns the output.
    fn rewritten(bytes: &[u8], at_a_time: usize) -> io::Result<Vec<u8>> {
        let mut rewriter = Rewriter::default();
        for part in bytes.chunks(at_a_time) {
            rewriter.take(part)?;
        }
        Ok(rewriter.output.to_vec())
    }

    fn request(authority: &[u8]) -> Vec<u8> {
        // GET, then the authority as a literal with indexing, by the first name of the static
        // table.
        let mut block = BytesMut::from(&[0x82, 0x41][..]);
        put_text(&mut block, authority);
        [vec![b'x'; PREFACE], frame(4, 0, &[0; 6]), frame(HEADERS, 0x5, &block)].concat()
    }

    #[test]
    fn an_authority_that_is_a_path_becomes_localhost() {
        let mut bytes = request(b"%2Fvar%2Flib%2Fkubelet%2Fcsi.sock");
        // A second request refers to the header table entry of the first.
        bytes.extend(frame(HEADERS, 0x5, &[0x82, 0xbe]));
        for at_a_time in [1, 7, 1000] {
            let out = frames(&rewritten(&bytes, at_a_time).unwrap());
            assert_eq!(out[0], (4, 0, vec![0; 6]), "settings are unchanged");
            let mut decoder = Decoder::new();
            for (kind, flags, block) in &out[1..] {
                assert_eq!((*kind, *flags), (HEADERS, 0x5));
                let headers = decoder.decode(block).unwrap();
                let want = [(&b":method"[..], &b"GET"[..]), (b":authority", b"localhost")];
                let found: Vec<_> = headers.iter().map(|(n, v)| (&n[..], &v[..])).collect();
                assert_eq!(found, want);
            }
            assert_eq!(out.len(), 3);
        }
    }

    #[test]
    fn headers_in_several_frames_with_padding_and_priority_are_joined() {
        let mut block = BytesMut::new();
        block.put_u8(0);
        put_text(&mut block, b"long");
        put_text(&mut block, &vec![b'v'; 20_000]);
        let mut first = vec![2, 1, 2, 3, 4, 5];
        first.extend_from_slice(&block[..10_000]);
        first.extend_from_slice(&[0; 2]);
        let bytes = [
            vec![b'x'; PREFACE],
            frame(HEADERS, PADDED | PRIORITY, &first),
            frame(CONTINUATION, END_HEADERS, &block[10_000..]),
        ];
        let out = frames(&rewritten(&bytes.concat(), 4096).unwrap());
        let kinds: Vec<_> = out.iter().map(|(kind, flags, _)| (*kind, *flags)).collect();
        assert_eq!(kinds, [(HEADERS, PRIORITY), (CONTINUATION, END_HEADERS)]);
        let whole = [&out[0].2[..], &out[1].2[..]].concat();
        assert_eq!(whole[..PRIORITY_LEN], [1, 2, 3, 4, 5]);
        assert_eq!(whole[PRIORITY_LEN..], block[..]);
    }

    #[test]
    fn frames_too_long_or_out_of_order_end_the_connection() {
        let start = vec![b'x'; PREFACE];
        let long = [0xff, 0xff, 0xff, HEADERS, 0, 0, 0, 0, 1];
        assert!(rewritten(&[start.clone(), long.to_vec()].concat(), 100).is_err());
        let stray = frame(CONTINUATION, END_HEADERS, &[0x82]);
        assert!(rewritten(&[start.clone(), stray].concat(), 100).is_err());
        let mut endless = [start, frame(HEADERS, 0, &[0x82; 10_000])].concat();
        for _ in 0..7 {
            endless.extend(frame(CONTINUATION, 0, &[0x82; 10_000]));
        }
        assert!(rewritten(&endless, 100_000).is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut all = request(b"a%b");
            all.extend(&bytes);
            let _ = rewritten(&all, 13);
            all.truncate(PREFACE);
            all.extend(frame(HEADERS, END_HEADERS, &bytes));
            let _ = rewritten(&all, 50);
        }
    }
}
