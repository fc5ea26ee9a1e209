//! Tests that are specific to TiKV: failing servers, races that a snapshot does not show, requests.

mod connecting;
mod dir_races;
mod faults;
mod large;
mod many_clients;
mod one_phase;
mod round_trips;
mod tls;
