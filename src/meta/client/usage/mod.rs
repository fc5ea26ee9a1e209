//! Usage of the volume, of directories and of owners, and the quotas that limit it.

pub mod accounting;
pub mod dir_stats;
mod flush;
mod owner_usage;
pub mod quota_limits;
mod rename_quota;
