//! Reading: from memory, from the cache, from the bucket, in this order.

use std::ops::Range;

use bytes::Bytes;
use futures::future::try_join_all;

use super::flight::{Boarding, Duty};
use super::hot::accounted;
use super::{BlockKey, Budget, Reserved, Store};
use crate::error::{Error, Result};
use crate::slice::SliceSize;
use crate::sync::Mutex;

/// Some bytes of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    block: BlockKey,
    part: Range<u32>,
}

/// Where the memory of a read comes from.
enum Room<'a> {
    /// Asked for as it is needed, and perhaps refused.
    Open(&'a Budget),
    /// Enough for the worst case, reserved beforehand.
    Ample(Mutex<Reserved>),
}

/// Why a block is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody waits for it.
    Wanted,
    /// Somebody will.
    Ahead,
}

/// Why a piece was not read.
enum Short {
    NoRoom,
    Failed(Error),
}

impl From<Error> for Short {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Room<'_> {
    fn take(&self, bytes: usize) -> Result<Reserved, Short> {
        match self {
            Self::Open(budget) => budget.try_reserve(bytes).ok_or(Short::NoRoom),
            Self::Ample(all) => {
                let mut all = all.lock();
                // A block larger than the whole budget has all of it.
                let bytes = bytes.min(all.bytes());
                all.split(bytes).ok_or(Short::NoRoom)
            }
        }
    }

    /// Takes back what was not needed after all.
    fn give(&self, reserved: Reserved) {
        match self {
            Self::Open(_) => drop(reserved),
            Self::Ample(all) => {
                all.lock().merge(reserved);
            }
        }
    }
}

impl Store {
    /// Bytes `range` of a slice, in pieces laid end to end. They are parts of blocks in memory and
    /// keep them there: who holds them must not wait for memory of the same budget, so several
    /// slices that are wanted at once are asked for by one [`Store::read_all`].
    pub async fn read(&self, slice: SliceSize, range: Range<u32>) -> Result<Vec<Bytes>> {
        self.read_all(&[(slice, range)]).await
    }

    /// The bytes of several slices, in pieces laid end to end.
    ///
    /// It never waits for memory while it holds some, so readers cannot block each other: at first
    /// memory is only taken if it is there at once. If not, everything taken is let go, and enough
    /// for the worst case, all blocks whole, is reserved in one go. Nothing after that asks for more:
    /// a flight has its memory before it starts, and neither it nor the cache waits for a reader.
    pub async fn read_all(&self, wanted: &[(SliceSize, Range<u32>)]) -> Result<Vec<Bytes>> {
        let pieces = self.pieces(wanted);
        match self.gather(&pieces, &Room::Open(&self.budget)).await {
            Ok(bytes) => return Ok(bytes),
            Err(Short::Failed(error)) => return Err(error),
            Err(Short::NoRoom) => {}
        }
        let worst = pieces.iter().map(Piece::room).sum();
        if worst > self.budget.capacity() {
            return self.read_piecemeal(&pieces).await;
        }
        self.gather_in(worst, &pieces).await
    }

    /// The bytes of a slice if they are in memory, or in files that the page cache has; never waits
    /// for anything. None also means: ask again with [`Store::read`].
    pub fn read_now(&self, slice: SliceSize, range: Range<u32>) -> Option<Vec<Bytes>> {
        let pieces = self.layout().pieces(slice, range);
        pieces
            .map(|(block, part)| self.hot.part(block, &part).or_else(|| self.cached(block, part)))
            .collect()
    }

    fn cached(&self, block: BlockKey, part: Range<u32>) -> Option<Bytes> {
        let cache = self.cache.as_ref()?;
        let reserved = self.budget.try_reserve(part.len())?;
        Some(accounted(cache.read_now(block, part)?, reserved))
    }

    fn pieces(&self, wanted: &[(SliceSize, Range<u32>)]) -> Vec<Piece> {
        let pieces =
            wanted.iter().flat_map(|(slice, range)| self.layout().pieces(*slice, range.clone()));
        pieces.map(|(block, part)| Piece { block, part }).collect()
    }

    async fn gather(&self, pieces: &[Piece], room: &Room<'_>) -> Result<Vec<Bytes>, Short> {
        if let [piece] = pieces {
            return Ok(vec![self.piece(piece, room).await?]);
        }
        try_join_all(pieces.iter().map(|piece| self.piece(piece, room))).await
    }

    /// Waits for that much memory, and reads.
    async fn gather_in(&self, bytes: usize, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        let room = Room::Ample(Mutex::new(self.budget.reserve(bytes).await));
        self.gather(pieces, &room).await.map_err(|short| match short {
            Short::Failed(error) => error,
            Short::NoRoom => Error::internal("reading", "what was reserved is not enough"),
        })
    }

    /// Reads pieces of more blocks than fit into memory, one after the other, and copies what is
    /// wanted of each. The copies are beyond the budget while the next block waits for room, so only
    /// one such read goes on at a time.
    async fn read_piecemeal(&self, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        // Never closed, so an error cannot be.
        let _turn = self.piecemeal.acquire().await;
        let mut copies = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let bytes = self.gather_in(piece.room(), std::slice::from_ref(piece)).await?;
            copies.extend(bytes.iter().map(|bytes| Bytes::copy_from_slice(bytes)));
        }
        Ok(copies)
    }

    async fn piece(&self, piece: &Piece, room: &Room<'_>) -> Result<Bytes, Short> {
        let Piece { block, part } = piece;
        if let Some(bytes) = self.hot.part(*block, part) {
            return Ok(bytes);
        }
        if let Some(cache) = &self.cache {
            let reserved = room.take(part.len())?;
            let bytes = match cache.read_now(*block, part.clone()) {
                Some(bytes) => Some(bytes),
                None => cache.read(*block, part.clone()).await,
            };
            match bytes {
                Some(bytes) => return Ok(accounted(bytes, reserved)),
                None => room.give(reserved),
            }
        }
        if self.prefers_part(piece) {
            match self.part(piece, room).await {
                // What is wrong with a part may be right with the whole, and a block that is not
                // in the bucket may be staged.
                Err(Short::Failed(
                    Error::Storage { .. } | Error::Denied { .. } | Error::MissingBlock { .. },
                )) => {}
                other => return other,
            }
        }
        self.whole(piece, room).await
    }

    /// Whether only the part should be fetched. A stream begins a block at its start, or goes on
    /// where it was, and wants all of it; who reads from its middle may not. With a cache, only a
    /// part that is much smaller than the block is worth a request of its own. And no part is
    /// compared with a checksum.
    fn prefers_part(&self, piece: &Piece) -> bool {
        let Piece { block, part } = piece;
        let is_small = self.cache.is_none() || part.end - part.start <= block.size / 4;
        let is_checked = self.bucket.checks_whole() && self.options.verify.takes(block.size);
        self.bucket.has_cheap_parts()
            && !is_checked
            && part.start > 0
            && is_small
            && !self.trail.goes_on(*block, part)
            && !self.flights.contains(*block)
            && !self.staging.as_ref().is_some_and(|staging| staging.contains(*block))
    }

    async fn part(&self, piece: &Piece, room: &Room<'_>) -> Result<Bytes, Short> {
        let reserved = room.take(piece.part.len())?;
        match self.bucket.fetch_part(piece.block, &piece.part).await {
            Ok(body) => {
                // Without a cache the whole block would be of use to a stream only, and that asks
                // for it itself.
                if self.cache.is_some() {
                    self.follow(piece.block);
                }
                Ok(accounted(body, reserved))
            }
            Err(error) => {
                room.give(reserved);
                Err(error.into())
            }
        }
    }

    /// The piece out of a flight of the whole block.
    async fn whole(&self, Piece { block, part }: &Piece, room: &Room<'_>) -> Result<Bytes, Short> {
        let flight = if let Some(flight) = self.flights.join(*block) {
            flight
        } else {
            let reserved = room.take(block.size as usize)?;
            match self.flights.board(*block, || self.hot.part(*block, part)) {
                Boarding::Arrived(bytes) => return Ok(bytes),
                Boarding::Joined(flight) => flight,
                Boarding::Started(flight, duty) => {
                    self.depart(duty, reserved, Purpose::Wanted);
                    flight
                }
            }
        };
        let body = flight.land().await?;
        // Asked there first, so that it counts as read.
        let bytes = self.hot.part(*block, part);
        Ok(bytes.unwrap_or_else(|| body.slice(part.start as usize..part.end as usize)))
    }

    /// Brings a block, in a task of its own.
    pub(super) fn depart(&self, duty: Duty, reserved: Reserved, purpose: Purpose) {
        // Someone holds the store, or nobody could ask.
        let Some(store) = self.me.upgrade() else { return };
        self.runtime.spawn(async move {
            let block = duty.block();
            let outcome = store.load(block).await.map(|body| {
                let is_partial = block.size < store.layout().block_size;
                if is_partial || !store.options.cache_partial_only {
                    // Without the reservation: the cache counts what it holds itself.
                    store.cache_block(block, &body);
                }
                let body = accounted(body, reserved);
                store.hot.keep(block, body.clone(), purpose == Purpose::Ahead);
                body
            });
            duty.done(outcome);
        });
    }

    /// A whole block, from the bucket or from where it is staged. Counts no memory.
    pub(super) async fn load(&self, block: BlockKey) -> Result<Bytes> {
        if self.staging.as_ref().is_some_and(|staging| staging.contains(block))
            && let Some(body) = self.load_staged(block).await
        {
            return Ok(body);
        }
        match self.bucket.fetch(block).await {
            // An earlier run, or another process, may have left it staged.
            Err(error @ Error::MissingBlock { .. }) => self.load_staged(block).await.ok_or(error),
            other => other,
        }
    }

    async fn load_staged(&self, block: BlockKey) -> Option<Bytes> {
        let (body, _) = self.cache.as_ref()?.read_staged(block).await.ok()?;
        Some(body)
    }
}

impl Piece {
    /// What it takes in the worst case.
    fn room(&self) -> usize {
        Budget::rounded(self.block.size as usize)
    }
}

#[cfg(test)]
mod tests;
