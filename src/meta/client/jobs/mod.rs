//! Background jobs: what one client does for all, by turns.

mod deleted_files;
mod slices;
