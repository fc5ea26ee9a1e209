//! Tests of the client: addresses, connections and the multiplexer.

mod address;
mod connecting;
mod faults;
mod hostile_servers;
mod interleavings;
mod multiplexer;

use super::super::tests::*;
