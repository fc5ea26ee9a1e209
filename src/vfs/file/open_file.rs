//! A file that is open or dirty: its length, its uncommitted drafts, and its error.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::commit::upload_and_commit;
use super::content::Content;
use super::draft::{Block, Draft, Stage};
use super::drafts::Drafts;
use super::flush_timer::{MAX_AGE, MAX_IDLE};
use crate::chunk::{Reserved, Upload};
use crate::error::{Error, Result};
use crate::ledger::LedgerSlot;
use crate::meta::record::{Attr, CHUNK_SIZE};
use crate::meta::{Ino, Timestamp};
use crate::sync::{Mutex, MutexGuard};

/// With more drafts than this the older half is frozen.
const FREEZE_DRAFTS: usize = 800;
/// With this many drafts, writes wait for commits.
const MAX_DRAFTS: usize = 1000;

pub struct OpenFile {
    pub ino: Ino,
    pub content: Arc<Content>,
    state: Mutex<State>,
    /// Serializes commits and changes of the length, so that the length known here is that of the
    /// last one.
    pub commit_lock: tokio::sync::Mutex<()>,
    /// Notified when a draft was committed, or the file has failed.
    progress: Notify,
}

struct State {
    handles: u32,
    tier: u8,
    drafts: Drafts,
    /// The length in metadata, as far as this client knows.
    stored: u64,
    /// Counts changes of the length in metadata by this client.
    version: u64,
    /// The next commit's mtime is not earlier than this.
    committed_mtime: Timestamp,
    error: Option<Error>,
    /// Ranges of written data that was given up. Reading them fails instead of returning the data
    /// that was there before.
    lost: Vec<Range<u64>>,
    /// Cancels the upload tasks when the file fails.
    failed: CancellationToken,
    /// Its entry in the list of dirty files, from the first draft until all are committed, or until
    /// the loss of one was reported.
    dirty: Option<LedgerSlot>,
}

/// The outcome of writing the next bytes.
pub enum WriteStep {
    /// This many bytes were taken.
    Bytes(usize),
    /// This much memory must be reserved first.
    NeedsMemory(usize),
    /// Too many drafts: something must be committed first.
    TooManyDrafts,
}

/// A draft that is ready to be committed.
pub struct ReadyDraft {
    pub number: u64,
    pub index: u32,
    pub pos: u32,
    pub len: u32,
    pub mtime: Timestamp,
    pub upload: Upload,
}

impl OpenFile {
    pub fn new(content: Arc<Content>, ino: Ino, attr: &Attr) -> Arc<Self> {
        let state = State {
            handles: 0,
            tier: attr.tier,
            drafts: Drafts::default(),
            stored: attr.length,
            version: 0,
            committed_mtime: Timestamp::default(),
            error: None,
            lost: Vec::new(),
            failed: CancellationToken::new(),
            dirty: None,
        };
        let (commit_lock, progress) = (tokio::sync::Mutex::default(), Notify::new());
        Arc::new(Self { ino, content, state: Mutex::new(state), commit_lock, progress })
    }

    /// Counts a handle. The first handle starts without the errors reported to earlier ones.
    pub fn open(&self) {
        let mut state = self.lock();
        if state.handles == 0 {
            self.recover(&mut state);
        }
        state.handles += 1;
    }

    pub fn close(&self) {
        let mut state = self.lock();
        state.handles = state.handles.saturating_sub(1);
    }

    /// Returns the length, including data that is not stored yet.
    pub fn length(&self) -> u64 {
        self.lock().length()
    }

    /// Returns the version of the length, to be read before an attr is read.
    pub fn length_version(&self) -> u64 {
        self.lock().version
    }

    /// Updates the file from an attr that was read after `version`, and returns the attr with data
    /// that is not stored yet.
    pub fn merge_attr(&self, mut attr: Attr, version: u64) -> Attr {
        let mut state = self.lock();
        if state.version == version {
            state.stored = attr.length;
            state.tier = attr.tier;
        }
        attr.length = state.length();
        attr.mtime = state.drafts.mtime().unwrap_or(attr.mtime);
        attr
    }

    /// Records that a change by this client left the file with this length.
    pub fn record_length(&self, length: u64) {
        let mut state = self.lock();
        state.stored = length;
        state.version += 1;
    }

    /// Records that the mtime was set: data written before no longer changes it.
    pub fn set_mtime(&self, mtime: Timestamp) {
        let mut state = self.lock();
        state.committed_mtime = Timestamp::default();
        for draft in state.drafts.iter_mut() {
            draft.mtime = mtime;
        }
    }

    /// Whether a read of the range has to wait, or to fail.
    pub fn is_dirty(&self, range: &Range<u64>) -> bool {
        let state = self.lock();
        state.drafts.is_dirty(range.clone()) || state.check_lost(range).is_err()
    }

    pub fn tier(&self) -> u8 {
        self.lock().tier
    }

    /// Puts the first of these bytes into a draft, up to the end of a block. `room` is memory
    /// already reserved for them, if any.
    pub fn take(
        self: &Arc<Self>,
        off: u64,
        bytes: &[u8],
        room: &mut Option<Reserved>,
    ) -> Result<WriteStep> {
        let mut state = self.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let (index, pos) = place(off);
        let len = bytes.len().min(as_len(CHUNK_SIZE - u64::from(pos)));
        let end = pos + super::draft::len32(len);
        let placement = state.drafts.place_write(index, pos, end);
        self.freeze_each(&mut state, &placement.stale);
        let length = state.length();
        let number = match placement.joins {
            Some(number) => number,
            None if state.drafts.len() >= MAX_DRAFTS => {
                self.freeze_all(&mut state);
                return Ok(WriteStep::TooManyDrafts);
            }
            None => self.begin(&mut state, index, pos),
        };
        let Some((_, draft)) = state.drafts.find(number) else {
            return Err(Error::internal("writing", "the draft of a write is missing"));
        };
        let bytes = &bytes[..len.min(draft.room(pos))];
        if let Some(wanted) = draft.memory_needed(pos, bytes.len()) {
            let Some(reserved) = self.content.take_room(wanted, room) else {
                if draft.len == 0 {
                    // It was created for this write, which has to wait.
                    state.drafts.remove(number);
                    if state.drafts.len() == 0 {
                        self.clear_dirty(&mut state);
                    }
                }
                return Ok(WriteStep::NeedsMemory(wanted));
            };
            draft.grow(wanted, reserved);
        }
        if draft.len == 0 {
            self.content.flush_timer.add(number, self);
        }
        let blocks = draft.put(pos, bytes);
        draft.grows |= off + bytes.len() as u64 > length;
        let is_complete = draft.is_complete();
        self.start_upload(&state, number, blocks);
        if is_complete {
            self.freeze_each(&mut state, &[number]);
        }
        if state.drafts.len() > FREEZE_DRAFTS {
            self.freeze_older_half(&mut state);
        }
        Ok(WriteStep::Bytes(bytes.len()))
    }

    /// Freezes a draft. Returns the memory that is released once it is stored.
    pub fn freeze(self: &Arc<Self>, number: u64) -> usize {
        let mut state = self.lock();
        let held = match state.drafts.find(number) {
            Some((_, draft)) if draft.is_open() => draft.held(),
            _ => return 0,
        };
        if held > 0 {
            self.freeze_each(&mut state, &[number]);
        }
        held
    }

    /// Freezes a draft if it is old or idle. Otherwise returns when it may become so.
    pub fn freeze_due(self: &Arc<Self>, number: u64, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        let (_, draft) = state.drafts.find(number)?;
        let due = (draft.started + MAX_AGE).min(draft.touched + MAX_IDLE);
        if due > now {
            return Some(due);
        }
        self.freeze_each(&mut state, &[number]);
        None
    }

    /// Waits until everything written before is committed.
    pub async fn flush(self: &Arc<Self>) -> Result<()> {
        let last = {
            let mut state = self.lock();
            self.freeze_all(&mut state);
            state.drafts.numbers().next_back()
        };
        let Some(last) = last else { return self.report() };
        self.wait(|state| state.drafts.numbers().next().is_none_or(|first| first > last)).await
    }

    /// Like [`OpenFile::flush`], if there is nothing to wait for.
    pub fn flush_now(&self) -> Option<Result<()>> {
        let is_clean = self.lock().drafts.len() == 0;
        is_clean.then(|| self.report())
    }

    /// Waits until data written to `range` before is committed, along with what that depends on.
    /// Fails if some of it was given up.
    pub async fn flush_range(self: &Arc<Self>, range: Range<u64>) -> Result<()> {
        let wanted = {
            let mut state = self.lock();
            state.check_lost(&range)?;
            let wanted = state.drafts.needed_to_read(range);
            self.freeze_each(&mut state, &wanted);
            wanted
        };
        if wanted.is_empty() {
            return Ok(());
        }
        self.wait(|state| !wanted.iter().any(|number| state.drafts.has(*number))).await
    }

    /// Waits for commits while there are too many drafts.
    pub async fn wait_for_fewer_drafts(&self) -> Result<()> {
        self.wait(|state| state.drafts.len() < MAX_DRAFTS).await
    }

    /// Records that the data of a draft is stored. Returns the upload if the draft was given up.
    pub fn record_stored(&self, number: u64, upload: Upload) -> Option<Upload> {
        match self.lock().drafts.find(number) {
            Some((_, draft)) => draft.stage = Stage::Stored(upload),
            None => return Some(upload),
        }
        None
    }

    /// Returns the next draft to commit. The caller holds the commit lock.
    pub fn next_to_commit(&self) -> Option<ReadyDraft> {
        let mut state = self.lock();
        let number = state.drafts.next_to_commit()?;
        let shown = state.committed_mtime;
        let (index, draft) = state.drafts.find(number)?;
        let Stage::Stored(upload) = std::mem::replace(&mut draft.stage, Stage::Committing) else {
            return None;
        };
        // Two chunks of a file may be committed in another order than they were written in.
        let mtime = draft.mtime.max(shown);
        let (pos, len) = (draft.pos, draft.len);
        Some(ReadyDraft { number, index, pos, len, mtime, upload })
    }

    /// Records that a draft is part of the file now.
    pub fn record_committed(&self, ready: &ReadyDraft) {
        let mut state = self.lock();
        let end = u64::from(ready.index) * CHUNK_SIZE + u64::from(ready.pos + ready.len);
        state.drafts.remove(ready.number);
        state.stored = state.stored.max(end);
        state.committed_mtime = ready.mtime;
        state.version += 1;
        if state.drafts.len() == 0 && state.error.is_none() {
            self.clear_dirty(&mut state);
        }
        drop(state);
        self.progress.notify_waiters();
    }

    /// Fails the file because a draft could not be stored or committed: nothing that is pending
    /// will be, so that no later write shows without the earlier ones. Returns the drafts given up,
    /// or `None` if this draft was given up before.
    pub fn fail(&self, number: u64, error: &Error) -> Option<Vec<Draft>> {
        let mut state = self.lock();
        let (index, _) = state.drafts.find(number)?;
        let grown = state.stored..state.drafts.end();
        let failed = state.drafts.remove(number)?;
        state.error.get_or_insert_with(|| error.clone());
        let mut given_up = state.drafts.give_up();
        given_up.push((index, failed));
        // Also ranges that read as zeros only because something was written after them.
        state.lost.push(grown);
        state.lost.extend(given_up.iter().map(|(index, draft)| draft.range(*index)));
        let given_up: Vec<Draft> = given_up.into_iter().map(|(_, draft)| draft).collect();
        state.version += 1;
        state.failed.cancel();
        drop(state);
        self.content.flush_timer.remove(given_up.iter().map(|draft| draft.number));
        self.progress.notify_waiters();
        Some(given_up)
    }

    /// Fails the file because an earlier process died with data that it had not stored. Which
    /// ranges are lost is not known, so reading any of them fails.
    pub fn fail_lost(&self, slot: Option<LedgerSlot>) {
        let mut state = self.lock();
        state.error.get_or_insert(Error::WritesLost);
        state.lost.push(0..u64::MAX);
        state.version += 1;
        state.dirty = state.dirty.take().or(slot);
    }

    fn recover(&self, state: &mut State) {
        if state.error.take().is_some() {
            state.lost.clear();
            state.failed = CancellationToken::new();
            if state.drafts.len() == 0 {
                self.clear_dirty(state);
            }
        }
    }

    fn mark_dirty(&self, state: &mut State) {
        if state.dirty.is_none()
            && let Some(ledger) = self.content.ledger()
        {
            state.dirty = ledger.mark_dirty(self.ino.0);
        }
    }

    fn clear_dirty(&self, state: &mut State) {
        if let (Some(slot), Some(ledger)) = (state.dirty.take(), self.content.ledger()) {
            ledger.clear_dirty(slot);
        }
    }

    /// Returns the error that the file has failed with. Without a handle that could be closed, it
    /// is reported once.
    fn report(&self) -> Result<()> {
        let mut state = self.lock();
        let Some(error) = state.error.clone() else { return Ok(()) };
        if state.handles == 0 {
            self.recover(&mut state);
        }
        Err(error)
    }

    async fn wait(&self, done: impl Fn(&State) -> bool) -> Result<()> {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            // Registered before checking, so that no notification is missed.
            progress.as_mut().enable();
            {
                let state = self.lock();
                if state.error.is_some() {
                    drop(state);
                    return self.report();
                }
                if done(&state) {
                    return Ok(());
                }
            }
            progress.await;
        }
    }

    fn begin(&self, state: &mut State, index: u32, pos: u32) -> u64 {
        let number = self.content.flush_timer.next_number();
        let mut draft = Draft::new(number, pos, self.content.block_size());
        draft.after = state.drafts.growth_before(index, state.length());
        state.drafts.push(index, draft);
        self.mark_dirty(state);
        number
    }

    fn freeze_all(self: &Arc<Self>, state: &mut State) {
        let open: Vec<u64> =
            state.drafts.iter().filter(|draft| draft.is_open()).map(|draft| draft.number).collect();
        self.freeze_each(state, &open);
    }

    fn freeze_older_half(self: &Arc<Self>, state: &mut State) {
        let older: Vec<u64> = state.drafts.numbers().take(state.drafts.len() / 2).collect();
        self.freeze_each(state, &older);
    }

    fn freeze_each<'a>(
        self: &Arc<Self>,
        state: &mut State,
        numbers: impl IntoIterator<Item = &'a u64>,
    ) {
        for &number in numbers {
            let Some((_, draft)) = state.drafts.find(number).filter(|(_, draft)| draft.is_open())
            else {
                continue;
            };
            let blocks = draft.freeze();
            self.start_upload(state, number, blocks);
            self.content.flush_timer.remove([number]);
        }
    }

    /// Starts the upload task of a draft when its first block is ready.
    fn start_upload(
        self: &Arc<Self>,
        state: &State,
        number: u64,
        blocks: Option<UnboundedReceiver<Block>>,
    ) {
        if let Some(blocks) = blocks {
            let task = upload_and_commit(Arc::clone(self), number, blocks, state.failed.clone());
            self.content.spawn(task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.clear_dirty(&mut self.state.lock());
        self.content.forget(self.ino);
    }
}

impl State {
    fn length(&self) -> u64 {
        self.stored.max(self.drafts.end())
    }

    fn check_lost(&self, range: &Range<u64>) -> Result<()> {
        let is_lost = |lost: &Range<u64>| lost.start < range.end && range.start < lost.end;
        match &self.error {
            Some(error) if self.lost.iter().any(is_lost) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

/// Returns the chunk that contains an offset, and the offset in it.
fn place(off: u64) -> (u32, u32) {
    let pos = u32::try_from(off % CHUNK_SIZE).unwrap_or(0);
    (crate::meta::chunk_range::chunk_index(off), pos)
}

fn as_len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
