//! Operations on the attributes of nodes: mode, owner, times, ACLs, extended attributes.

pub mod access;
pub mod acl;
pub mod atime;
pub mod repair;
pub mod setattr;
pub mod xattr;
