//! What is particular to TiKV: servers that fail, races that a snapshot does not see, requests.

mod connecting;
mod faults;
mod places;
mod round_trips;
