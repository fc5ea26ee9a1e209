//! trash
