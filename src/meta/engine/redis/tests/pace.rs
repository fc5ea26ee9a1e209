//! How fast a create is.
