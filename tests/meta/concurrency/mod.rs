//! Several tasks or clients on the same nodes, caches out of date, and lost replies.

mod concurrent_removal;
mod contention;
mod lost_replies;
mod stale_cache;
