//! The keeper: its protocol, who owns, its program, and the server that it supervises.
#![cfg(test)]

mod fake_server;
mod fixture;
mod hostile_clients;
mod ownership;
mod program;
mod supervise;
