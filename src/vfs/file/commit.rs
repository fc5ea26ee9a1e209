//! Uploads the blocks of a draft as they fill, then commits the draft to metadata.
//!
//! Runs in its own tasks, so that nothing is lost or done twice if a caller goes away.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::draft::{Block, Stage};
use super::open_file::{OpenFile, ReadyDraft};
use crate::chunk::Upload;
use crate::error::{Error, Result};
use crate::meta::record::Slice;

/// Uploads a draft from its first block to its last, then commits every draft of the file that is
/// ready. A panic fails the draft, since a flush waits for it.
pub async fn upload_and_commit(
    file: Arc<OpenFile>,
    number: u64,
    blocks: UnboundedReceiver<Block>,
    failed: CancellationToken,
) {
    let work = run(Arc::clone(&file), number, blocks, failed);
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        let error = Error::internal("storing written data", "the task panicked");
        fail(&file, number, &error);
    }
}

async fn run(
    file: Arc<OpenFile>,
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
        Ok(()) => file.record_stored(number, upload),
        Err(error) => {
            fail(&file, number, &error);
            Some(upload)
        }
    };
    match unwanted {
        Some(upload) => abort(upload).await,
        None => commit_ready(&file).await,
    }
}

async fn store(upload: &mut Upload, mut blocks: UnboundedReceiver<Block>) -> Result<()> {
    while let Some(Block { index, bytes, reserved }) = blocks.recv().await {
        upload.put(index, bytes, reserved);
    }
    upload.finish().await
}

/// Commits every draft of the file that can be, one after the other.
async fn commit_ready(file: &Arc<OpenFile>) {
    loop {
        let _commit_lock = file.commit_lock.lock().await;
        let Some(ready) = file.next_to_commit() else { return };
        let ReadyDraft { index, pos, len, mtime, .. } = ready;
        let slice = Slice { pos, id: ready.upload.id(), size: len, off: 0, len };
        match file.content.meta.write(file.ino, index, pos, slice, mtime).await {
            Ok(()) => file.record_committed(&ready),
            Err(error) => {
                fail(file, ready.number, &error);
                // After these errors the slice is certainly not part of the file and never will be.
                // After any other error the commit may have taken effect, or may do so yet: then
                // the objects stay, and belong to the file or to garbage collection.
                if matches!(error, Error::NotFound | Error::NoSpace | Error::QuotaExceeded) {
                    abort(ready.upload).await;
                } else {
                    file.content.reload_length(file, &error).await;
                }
            }
        }
    }
}

/// Gives up a draft, and with it everything pending in the file. Data that a write accepted is lost
/// nowhere else, so this is the one place that logs it. A deleted file or a full volume is an
/// expected outcome and not logged.
fn fail(file: &OpenFile, number: u64, error: &Error) {
    let Some(given_up) = file.fail(number, error) else { return };
    if error.is_fault() {
        error!(ino = file.ino.0, %error, "data that was written but not flushed is lost");
    }
    // Drafts that are still being uploaded are aborted by their own tasks.
    for draft in given_up {
        if let Stage::Stored(upload) = draft.stage {
            file.content.spawn(abort(upload));
        }
    }
}

async fn abort(upload: Upload) {
    let id = upload.id();
    if let Err(error) = upload.abort().await {
        warn!(slice = id.0, %error, "cannot delete the objects of an aborted slice; they leak");
    }
}
