//! The content of files: open files, dirty data and readers.
//!
//! A write takes one straight path. [`Content::write`] finds the [`OpenFile`](open_file::OpenFile)
//! of the inode, which puts the bytes into a [`Draft`](draft::Draft). The first full block of a
//! draft starts a task ([`commit`]) that uploads its blocks as they come. A draft is frozen when a
//! flush needs it, when the [`FlushTimer`](flush_timer::FlushTimer) finds it old, idle or in the
//! way of new data, or when it can take no more writes. The task then uploads the rest and commits
//! the draft to metadata, in the order that [`Drafts`](drafts::Drafts) keeps.
//!
//! A [`Reader`] commits the drafts that overlap its range, then reads what is committed.

mod block_buffer;
mod commit;
pub(super) mod content;
mod draft;
mod drafts;
mod flush_timer;
mod open_file;
mod read_write;
mod readahead;
pub(super) mod reader;
mod seek;
mod slice_ranges;
mod truncate;

pub use content::{Content, ContentOptions};
pub use reader::Reader;
pub use seek::Seek;
