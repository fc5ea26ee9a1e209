//! Carrying: a draft's blocks go to the store as they come, then the draft becomes part of its file.
//!
//! Runs in tasks of its own, so that nothing is lost or done twice if a caller goes away.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::draft::{Block, Stage};
use super::file::{File, Ready};
use crate::chunk::Upload;
use crate::error::{Error, Result};
use crate::meta::record::Slice;

/// Uploads a draft from its first block to its last, then commits what can be. A panic fails the draft:
/// a flush waits for it.
pub async fn carry(
    file: Arc<File>,
    number: u64,
    blocks: UnboundedReceiver<Block>,
    failed: CancellationToken,
) {
    let work = upload_and_commit(Arc::clone(&file), number, blocks, failed);
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        let error = Error::internal("storing what was written", "the task panicked");
        fail(&file, number, &error);
    }
}

async fn upload_and_commit(
    file: Arc<File>,
    number: u64,
    blocks: UnboundedReceiver<Block>,
    failed: CancellationToken,
) {
    let id = match file.content.meta.new_slice().await {
        Ok(id) => id,
        Err(error) => return fail(&file, number, &error),
    };
    let mut upload = file.content.store.upload(id, file.tier());
    let stored = tokio::select! {
        stored = store(&mut upload, blocks) => stored,
        () = failed.cancelled() => Err(Error::Interrupted),
    };
    let unwanted = match stored {
        Ok(()) => file.stored(number, upload),
        Err(error) => {
            fail(&file, number, &error);
            Some(upload)
        }
    };
    match unwanted {
        Some(upload) => abort(upload).await,
        None => commit(&file).await,
    }
}

async fn store(upload: &mut Upload, mut blocks: UnboundedReceiver<Block>) -> Result<()> {
    while let Some(Block { index, bytes, reserved }) = blocks.recv().await {
        upload.put(index, bytes, reserved);
    }
    upload.finish().await
}

/// Commits every draft of the file that can be, one after the other.
async fn commit(file: &Arc<File>) {
    loop {
        let _turn = file.turn.lock().await;
        let Some(ready) = file.ready() else { return };
        let Ready { index, pos, len, mtime, .. } = ready;
        let slice = Slice { pos, id: ready.upload.id(), size: len, off: 0, len };
        match file.content.meta.write(file.ino, index, pos, slice, mtime).await {
            Ok(()) => file.committed(&ready),
            Err(error) => {
                fail(file, ready.number, &error);
                // After these the slice is certainly not part of the file, and never will be. After
                // any other, a commit whose answer was lost may have taken effect or may do so yet:
                // then its objects are left, to the file or to the garbage collection.
                if matches!(error, Error::NotFound | Error::NoSpace | Error::QuotaExceeded) {
                    abort(ready.upload).await;
                } else {
                    file.content.look_again(file, &error).await;
                }
            }
        }
    }
}

/// The one place where data that was taken is given up, so the one where that is logged. That the
/// file is gone, or the volume full, is an answer.
fn fail(file: &File, number: u64, error: &Error) {
    let Some(given_up) = file.fail(number, error) else { return };
    if error.is_fault() {
        error!(ino = file.ino.0, %error, "what was written and not flushed is lost");
    }
    // Those that are being uploaded are aborted by whoever does it.
    for draft in given_up {
        if let Stage::Stored(upload) = draft.stage {
            file.content.spawn(abort(upload));
        }
    }
}

async fn abort(upload: Upload) {
    let id = upload.id();
    if let Err(error) = upload.abort().await {
        warn!(slice = id.0, %error, "the objects of a slice leak");
    }
}
