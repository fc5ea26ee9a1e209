//! How the driver serves calls: its sockets, the admission of calls, registration with kubelet, and
//! the HTTP endpoints.

pub mod admission;
pub mod authority;
pub mod http;
pub mod identity;
pub mod registration;
pub mod socket;
