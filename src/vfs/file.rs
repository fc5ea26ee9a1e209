//! One file that is open or dirty: how long it is here, what is pending, and whether it has failed.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::carry::carry;
use super::content::Content;
use super::draft::{Block, Draft, Stage};
use super::drain::{MAX_AGE, MAX_IDLE};
use super::pending::Pending;
use crate::chunk::{Reserved, Upload};
use crate::error::{Error, Result};
use crate::meta::record::{Attr, CHUNK_SIZE};
use crate::meta::{Ino, Timestamp};
use crate::sync::{Mutex, MutexGuard};

/// With more drafts than this the older half is frozen.
const MANY_DRAFTS: usize = 800;
/// With as many, writes wait for commits.
const MAX_DRAFTS: usize = 1000;

pub struct File {
    pub ino: Ino,
    pub content: Arc<Content>,
    state: Mutex<State>,
    /// Commits and changes of the length take turns, so that the length known here is that of the
    /// last one.
    pub turn: tokio::sync::Mutex<()>,
    /// Something was committed, or the file has failed.
    progress: Notify,
}

struct State {
    handles: u32,
    tier: u8,
    pending: Pending,
    /// The length in metadata, as far as this client knows.
    stored: u64,
    /// Counts changes of the length in metadata by this client.
    mark: u64,
    /// Not earlier than this is the next commit's mtime.
    shown: Timestamp,
    error: Option<Error>,
    /// What was written and given up: reads of it are told so, instead of what was there before.
    lost: Vec<Range<u64>>,
    /// Tells those who carry drafts that the file has failed.
    failed: CancellationToken,
}

/// What became of a write's next bytes.
pub enum Taken {
    /// As many are in.
    Bytes(usize),
    /// So much memory must be reserved first.
    Wants(usize),
    /// Too many drafts: something must be committed first.
    Crowded,
}

/// A draft whose turn it is to be committed.
pub struct Ready {
    pub number: u64,
    pub index: u32,
    pub pos: u32,
    pub len: u32,
    pub mtime: Timestamp,
    pub upload: Upload,
}

impl File {
    pub fn new(content: Arc<Content>, ino: Ino, attr: &Attr) -> Arc<Self> {
        let state = State {
            handles: 0,
            tier: attr.tier,
            pending: Pending::default(),
            stored: attr.length,
            mark: 0,
            shown: Timestamp::default(),
            error: None,
            lost: Vec::new(),
            failed: CancellationToken::new(),
        };
        let (turn, progress) = (tokio::sync::Mutex::default(), Notify::new());
        Arc::new(Self { ino, content, state: Mutex::new(state), turn, progress })
    }

    /// Counts a handle. The first one starts without the errors that earlier ones were told of.
    pub fn open(&self) {
        let mut state = self.lock();
        if state.handles == 0 {
            state.recover();
        }
        state.handles += 1;
    }

    pub fn close(&self) {
        let mut state = self.lock();
        state.handles = state.handles.saturating_sub(1);
    }

    /// With what is not stored yet.
    pub fn length(&self) -> u64 {
        self.lock().length()
    }

    /// A moment in the life of the length, to be taken before an attr is read.
    pub fn mark(&self) -> u64 {
        self.lock().mark
    }

    /// Takes note of an attr that was read after `mark`, and answers it with what is not stored yet.
    pub fn saw(&self, mut attr: Attr, mark: u64) -> Attr {
        let mut state = self.lock();
        if state.mark == mark {
            state.stored = attr.length;
            state.tier = attr.tier;
        }
        attr.length = state.length();
        attr.mtime = state.pending.mtime().unwrap_or(attr.mtime);
        attr
    }

    /// Takes note that a change by this client left the file with this length.
    pub fn resized(&self, length: u64) {
        let mut state = self.lock();
        state.stored = length;
        state.mark += 1;
    }

    /// Somebody set the mtime: what was written before does not change it any more.
    pub fn set_mtime(&self, mtime: Timestamp) {
        let mut state = self.lock();
        state.shown = Timestamp::default();
        for draft in state.pending.iter_mut() {
            draft.mtime = mtime;
        }
    }

    /// Whether a read of the range has to wait, or to fail.
    pub fn is_dirty(&self, range: &Range<u64>) -> bool {
        let state = self.lock();
        state.pending.is_dirty(range.clone()) || state.check_lost(range).is_err()
    }

    pub fn tier(&self) -> u8 {
        self.lock().tier
    }

    /// Puts the first of these bytes into a draft, as many as go into one block. `room` is memory
    /// reserved for it already, if any.
    pub fn take(
        self: &Arc<Self>,
        off: u64,
        bytes: &[u8],
        room: &mut Option<Reserved>,
    ) -> Result<Taken> {
        let mut state = self.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let (index, pos) = place(off);
        let len = bytes.len().min(as_len(CHUNK_SIZE - u64::from(pos)));
        let end = pos + super::draft::len32(len);
        let landing = state.pending.landing(index, pos, end);
        self.freeze_each(&mut state, &landing.stale);
        let length = state.length();
        let number = match landing.joins {
            Some(number) => number,
            None if state.pending.len() >= MAX_DRAFTS => {
                self.freeze_all(&mut state);
                return Ok(Taken::Crowded);
            }
            None => self.begin(&mut state, index, pos),
        };
        let Some((_, draft)) = state.pending.find(number) else {
            return Err(Error::internal("writing", "a draft is gone"));
        };
        let bytes = &bytes[..len.min(draft.room(pos))];
        if let Some(wanted) = draft.wants(pos, bytes.len()) {
            let Some(reserved) = self.content.take_room(wanted, room) else {
                if draft.len == 0 {
                    // It was made for this write, which has to wait.
                    state.pending.remove(number);
                }
                return Ok(Taken::Wants(wanted));
            };
            draft.grow(wanted, reserved);
        }
        if draft.len == 0 {
            self.content.drain.add(number, self);
        }
        let blocks = draft.put(pos, bytes);
        draft.grows |= off + bytes.len() as u64 > length;
        let is_complete = draft.is_complete();
        self.carry(&state, number, blocks);
        if is_complete {
            self.freeze_each(&mut state, &[number]);
        }
        if state.pending.len() > MANY_DRAFTS {
            self.freeze_older_half(&mut state);
        }
        Ok(Taken::Bytes(bytes.len()))
    }

    /// Freezes one draft; answers the memory that comes back once it is stored.
    pub fn freeze(self: &Arc<Self>, number: u64) -> usize {
        let mut state = self.lock();
        let held = match state.pending.find(number) {
            Some((_, draft)) if draft.is_open() => draft.held(),
            _ => return 0,
        };
        if held > 0 {
            self.freeze_each(&mut state, &[number]);
        }
        held
    }

    /// Freezes one draft if it is old or idle; otherwise answers when that may be.
    pub fn freeze_due(self: &Arc<Self>, number: u64, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        let (_, draft) = state.pending.find(number)?;
        let due = (draft.started + MAX_AGE).min(draft.touched + MAX_IDLE);
        if due > now {
            return Some(due);
        }
        self.freeze_each(&mut state, &[number]);
        None
    }

    /// Waits until everything that was written before is committed.
    pub async fn flush(self: &Arc<Self>) -> Result<()> {
        let last = {
            let mut state = self.lock();
            self.freeze_all(&mut state);
            state.pending.iter().map(|draft| draft.number).max()
        };
        let Some(last) = last else { return self.report() };
        self.wait(|state| state.pending.iter().all(|draft| draft.number > last)).await
    }

    /// As [`File::flush`], if there is nothing to wait for.
    pub fn flush_now(&self) -> Option<Result<()>> {
        let is_clean = self.lock().pending.len() == 0;
        is_clean.then(|| self.report())
    }

    /// Waits until what was written to `range` before is committed, and no more than that takes.
    /// Fails if some of it was given up.
    pub async fn flush_range(self: &Arc<Self>, range: Range<u64>) -> Result<()> {
        let wanted = {
            let mut state = self.lock();
            state.check_lost(&range)?;
            let wanted = state.pending.under(range);
            self.freeze_each(&mut state, &wanted);
            wanted
        };
        if wanted.is_empty() {
            return Ok(());
        }
        let is_wanted = |draft: &Draft| wanted.contains(&draft.number);
        self.wait(|state| !state.pending.iter().any(is_wanted)).await
    }

    /// Waits until something was committed, if there are too many drafts.
    pub async fn uncrowded(&self) -> Result<()> {
        self.wait(|state| state.pending.len() < MAX_DRAFTS).await
    }

    /// The data of a draft is stored. Answers the upload again if nobody wants it any more.
    pub fn stored(&self, number: u64, upload: Upload) -> Option<Upload> {
        match self.lock().pending.find(number) {
            Some((_, draft)) => draft.stage = Stage::Stored(upload),
            None => return Some(upload),
        }
        None
    }

    /// The next draft to commit. The caller has the file's turn.
    pub fn ready(&self) -> Option<Ready> {
        let mut state = self.lock();
        let number = state.pending.ready()?;
        let shown = state.shown;
        let (index, draft) = state.pending.find(number)?;
        let Stage::Stored(upload) = std::mem::replace(&mut draft.stage, Stage::Committing) else {
            return None;
        };
        // Two chunks of a file may be committed in another order than they were written in.
        let mtime = draft.mtime.max(shown);
        let (pos, len) = (draft.pos, draft.len);
        Some(Ready { number, index, pos, len, mtime, upload })
    }

    /// A draft is part of the file now.
    pub fn committed(&self, ready: &Ready) {
        let mut state = self.lock();
        let end = u64::from(ready.index) * CHUNK_SIZE + u64::from(ready.pos + ready.len);
        state.pending.remove(ready.number);
        state.stored = state.stored.max(end);
        state.shown = ready.mtime;
        state.mark += 1;
        drop(state);
        self.progress.notify_waiters();
    }

    /// A draft could not be stored or committed: nothing that is pending will be, so that no later
    /// write shows without the earlier ones. Answers what was given up with it; none if the draft
    /// itself was given up before.
    pub fn fail(&self, number: u64, error: &Error) -> Option<Vec<Draft>> {
        let mut state = self.lock();
        let (index, _) = state.pending.find(number)?;
        let grown = state.stored..state.pending.end();
        let failed = state.pending.remove(number)?;
        state.error.get_or_insert_with(|| error.clone());
        let mut given_up = state.pending.give_up();
        given_up.push((index, failed));
        // Also what reads as zeros only because something was written behind it.
        state.lost.push(grown);
        state.lost.extend(given_up.iter().map(|(index, draft)| draft.range(*index)));
        let given_up: Vec<Draft> = given_up.into_iter().map(|(_, draft)| draft).collect();
        state.mark += 1;
        state.failed.cancel();
        drop(state);
        self.content.drain.remove(given_up.iter().map(|draft| draft.number));
        self.progress.notify_waiters();
        Some(given_up)
    }

    /// The error that the file has failed with. Without a handle that could be closed it is told
    /// once.
    fn report(&self) -> Result<()> {
        let mut state = self.lock();
        let Some(error) = state.error.clone() else { return Ok(()) };
        if state.handles == 0 {
            state.recover();
        }
        Err(error)
    }

    async fn wait(&self, done: impl Fn(&State) -> bool) -> Result<()> {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            // From here on nothing is missed.
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
        let number = self.content.drain.number();
        let mut draft = Draft::new(number, pos, self.content.block_size());
        draft.after = state.pending.growth_before(index, state.length());
        state.pending.push(index, draft);
        number
    }

    fn freeze_all(self: &Arc<Self>, state: &mut State) {
        let open: Vec<u64> = state
            .pending
            .iter()
            .filter(|draft| draft.is_open())
            .map(|draft| draft.number)
            .collect();
        self.freeze_each(state, &open);
    }

    fn freeze_older_half(self: &Arc<Self>, state: &mut State) {
        let mut numbers: Vec<u64> = state.pending.iter().map(|draft| draft.number).collect();
        numbers.sort_unstable();
        numbers.truncate(numbers.len() / 2);
        self.freeze_each(state, &numbers);
    }

    fn freeze_each<'a>(
        self: &Arc<Self>,
        state: &mut State,
        numbers: impl IntoIterator<Item = &'a u64>,
    ) {
        for &number in numbers {
            let Some((_, draft)) = state.pending.find(number).filter(|(_, draft)| draft.is_open())
            else {
                continue;
            };
            let blocks = draft.freeze();
            self.carry(state, number, blocks);
            self.content.drain.remove([number]);
        }
    }

    /// Starts to upload a draft, if there is something to upload that nobody has begun with.
    fn carry(
        self: &Arc<Self>,
        state: &State,
        number: u64,
        blocks: Option<UnboundedReceiver<Block>>,
    ) {
        if let Some(blocks) = blocks {
            let task = carry(Arc::clone(self), number, blocks, state.failed.clone());
            self.content.spawn(task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.content.forget(self.ino);
    }
}

impl State {
    fn length(&self) -> u64 {
        self.stored.max(self.pending.end())
    }

    fn check_lost(&self, range: &Range<u64>) -> Result<()> {
        let is_lost = |lost: &Range<u64>| lost.start < range.end && range.start < lost.end;
        match &self.error {
            Some(error) if self.lost.iter().any(is_lost) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn recover(&mut self) {
        if self.error.take().is_some() {
            self.lost.clear();
            self.failed = CancellationToken::new();
        }
    }
}

/// The chunk that an offset falls into, and where in it.
fn place(off: u64) -> (u32, u32) {
    let pos = u32::try_from(off % CHUNK_SIZE).unwrap_or(0);
    (crate::meta::chunk_range::chunk_index(off), pos)
}

fn as_len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
