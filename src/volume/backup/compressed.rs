//! A dump as one compressed body of bounded size.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;

use crate::error::{Error, Result, joined};
use crate::meta::Meta;
use crate::meta::dump::{DumpOptions, Progress, Skipped, json};

/// Pieces of a dump that wait to be compressed.
const PIECES: usize = 4;

/// Bytes up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.limit - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.try_reserve(piece.len()).map_err(io::Error::other)?;
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Dumps the metadata as compressed JSON of at most `limit` bytes.
pub async fn dump(meta: &Meta, options: &DumpOptions, limit: usize) -> Result<(Bytes, Skipped)> {
    let (pieces, received) = mpsc::channel(PIECES);
    let compressing = tokio::task::spawn_blocking(move || compress(received, limit));
    let (engine, setting) = (meta.engine().clone(), meta.context().setting());
    let progress = Progress::default();
    let exported = json::export::export(engine, &setting, options, pieces, &progress).await;
    // If compressing failed, the export could not send the rest: its error is the cause.
    let body = joined("compressing", compressing).await?;
    Ok((body, exported?))
}

fn compress(mut pieces: mpsc::Receiver<Vec<u8>>, limit: usize) -> Result<Bytes> {
    let target = Bounded { bytes: Vec::new(), limit };
    let mut out = GzEncoder::new(target, Compression::fast());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => Error::bad_input(format!(
            "the compressed metadata is larger than {} MiB: back it up with `jfs-mount dump`",
            limit >> 20
        )),
        _ => Error::bad_input(error),
    };
    while let Some(piece) = pieces.blocking_recv() {
        out.write_all(&piece).map_err(failed)?;
    }
    Ok(out.finish().map_err(failed)?.bytes.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    async fn compressed(pieces: usize, limit: usize) -> Result<Bytes> {
        let (sender, received) = mpsc::channel(PIECES);
        let task = tokio::task::spawn_blocking(move || compress(received, limit));
        for _ in 0..pieces {
            // Cannot be compressed.
            let piece = (0..1 << 16).map(|_| rand::random()).collect();
            if sender.send(piece).await.is_err() {
                break;
            }
        }
        drop(sender);
        task.await.unwrap()
    }

    #[tokio::test]
    async fn pieces_become_one_body() {
        let body = compressed(3, 1 << 20).await.unwrap();
        let mut text = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), 3 << 16);
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_an_error_that_names_the_limit() {
        let error = compressed(20, 1 << 20).await.map(|body| body.len()).unwrap_err();
        assert!(error.to_string().contains("larger than 1 MiB"), "{error}");
    }
}
