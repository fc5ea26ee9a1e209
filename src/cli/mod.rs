//! The subcommands of `jfs-mount`, one file each.
