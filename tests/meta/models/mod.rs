//! Random operations, compared with simple in-memory models.

mod content_model;
mod model;
mod reference;
