//! Background work: deleting data that nothing refers to, compaction, and the periodic jobs.

pub mod compaction;
pub mod garbage;
pub mod jobs;
