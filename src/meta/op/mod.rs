//! Operations: what each file-system operation means, one file each, for every engine.
//!
//! The shape is always: prefetch, look, refuse, compute, plan.

pub mod access;
pub mod room;
