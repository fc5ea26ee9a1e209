//! Quotas as this client knows them: limits, usage, and what it has yet to report.

#[derive(Default)]
pub struct Quotas {}
