//! The node service.

mod attributes;
mod publish;
