//! Tests of the TiKV engine: failing servers, races that snapshot isolation misses, request counts.

mod connecting;
mod dir_locks;
mod faults;
mod limits;
mod many_clients;
mod one_phase;
mod round_trips;
mod tls;
