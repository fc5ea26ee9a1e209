//! Usage of the volume, of directories and of owners, and the limits on it.

mod accounting;
mod quota;
mod quota_requests;
