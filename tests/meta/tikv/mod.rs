//! What is particular to TiKV: servers that fail, races that a snapshot does not see, requests.

mod connecting;
mod faults;
mod large;
mod many;
mod one_phase;
mod places;
mod round_trips;
mod tls;
