//! The rules: who may know whom.

use super::source::{Mention, Names, Target, Tree};

/// Each module below `src/` and what it may know besides itself. A module that is not here is
/// refused, so that a new one gets its place in the order first.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("crc32c", &[]),
    ("descriptors", &[]),
    ("keeper", &["descriptors", "error", "sync"]),
    ("metric_families", &[]),
    ("rate_limit", &[]),
    ("policy", &["error"]),
    ("buffer_pool", &["sync"]),
    ("ledger", &["error", "sync"]),
    ("log", &[]),
    ("outage", &["sync"]),
    ("runtime", &["descriptors", "error"]),
    ("metrics_http", &["sync"]),
    ("secret", &[]),
    ("slice", &[]),
    ("sync", &[]),
    ("tls", &["error", "policy"]),
    (
        "object",
        &[
            "crc32c",
            "descriptors",
            "error",
            "outage",
            "rate_limit",
            "buffer_pool",
            "policy",
            "secret",
            "tls",
            "sync",
        ],
    ),
    ("chunk", &["crc32c", "descriptors", "error", "buffer_pool", "slice", "object", "sync"]),
    (
        "meta",
        &[
            "error",
            "ledger",
            "metric_families",
            "outage",
            "policy",
            "secret",
            "slice",
            "tls",
            "sync",
        ],
    ),
    (
        "vfs",
        &[
            "error",
            "ledger",
            "metric_families",
            "rate_limit",
            "buffer_pool",
            "slice",
            "meta",
            "chunk",
            "sync",
        ],
    ),
    ("fuse", &["error", "ledger", "slice", "meta", "vfs", "sync"]),
    (
        "volume",
        &[
            "error", "keeper", "ledger", "policy", "secret", "slice", "meta", "object", "chunk",
            "vfs", "fuse",
        ],
    ),
    ("options", &["error", "policy", "secret", "meta", "object", "chunk", "vfs", "fuse", "volume"]),
    ("access", &["error", "policy", "secret", "meta", "volume", "options"]),
    (
        "mounts",
        &[
            "access",
            "error",
            "keeper",
            "ledger",
            "buffer_pool",
            "meta",
            "chunk",
            "vfs",
            "fuse",
            "volume",
            "options",
            "sync",
        ],
    ),
    (
        "csi",
        &[
            "access",
            "error",
            "keeper",
            "log",
            "metrics_http",
            "policy",
            "tls",
            "meta",
            "vfs",
            "volume",
            "options",
            "mounts",
            "sync",
        ],
    ),
    (
        "cli",
        &[
            "error",
            "ledger",
            "keeper",
            "log",
            "metrics_http",
            "secret",
            "slice",
            "meta",
            "object",
            "chunk",
            "vfs",
            "fuse",
            "volume",
            "options",
        ],
    ),
    ("bin", &["error", "keeper", "runtime", "cli", "csi"]),
];

/// Finer rules inside a layer: a module and what it must not know.
const INSIDE: &[(&str, &[&str])] = &[
    ("csi::controller", &["csi::node", "mounts"]),
    ("csi::node", &["csi::controller"]),
    (
        "meta::record",
        &[
            "meta::engine",
            "meta::context",
            "meta::txn",
            "meta::plan",
            "meta::operation",
            "meta::op",
            "meta::client",
        ],
    ),
    (
        "meta::engine",
        &[
            "meta::context",
            "meta::txn",
            "meta::plan",
            "meta::operation",
            "meta::op",
            "meta::client",
        ],
    ),
    ("meta::context", &["meta::txn", "meta::plan", "meta::operation", "meta::op", "meta::client"]),
    ("meta::txn", &["meta::operation", "meta::op", "meta::client"]),
    ("meta::plan", &["meta::operation", "meta::op", "meta::client"]),
    ("meta::operation", &["meta::op", "meta::client"]),
    ("meta::op", &["meta::client"]),
    ("meta::context", STORES),
    ("meta::engine::redis", &["meta::engine::kv", "meta::engine::sqlite", "meta::engine::tikv"]),
    ("meta::engine::kv", &["meta::engine::redis", "meta::engine::sqlite", "meta::engine::tikv"]),
    ("meta::engine::sqlite", &["meta::engine::redis", "meta::engine::kv", "meta::engine::tikv"]),
    ("meta::engine::tikv", &["meta::engine::redis", "meta::engine::sqlite"]),
    ("meta::txn", STORES),
    ("meta::plan", STORES),
    ("meta::operation", STORES),
    ("meta::op", STORES),
    ("meta::client", STORES),
    ("meta::dump", STORES),
    ("meta::dump", &["meta::op", "meta::client", "meta::context", "meta::plan", "meta::txn"]),
];

/// What subcommands share; of the rest of `cli`, none knows another.
const SHARED_BY_COMMANDS: &[&str] = &[
    "confirm",
    "dump_file",
    "exit",
    "help",
    "meta_url",
    "progress",
    "relaunch",
    "stats_file",
    "stop_signals",
    "table",
    "volume_scan",
];

/// An operation is written once for all of them.
const STORES: &[&str] =
    &["meta::engine::redis", "meta::engine::kv", "meta::engine::sqlite", "meta::engine::tikv"];

/// Foreign crates, or modules of them, and the folders that they belong to.
const FOREIGN: &[(&str, &[&str])] = &[
    ("fuser", &["fuse"]),
    ("tonic", &["csi"]),
    ("tonic_prost", &["csi"]),
    ("prost", &["csi", "meta::dump"]),
    ("saphyr_parser", &["access"]),
    ("redis", &["meta::engine"]),
    ("tikv_client", &["meta::engine"]),
    ("rusqlite", &["meta::engine"]),
    ("aws_sdk_s3", &["object"]),
    ("nix::mount", &["mounts", "fuse"]),
    ("anyhow", &["bin", "cli", "options"]),
];

/// Every broken rule, one line each: file, line, what is wrong.
pub fn violations(tree: &Tree) -> Vec<String> {
    let mut broken = Vec::new();
    for (file, modules) in &tree.files {
        for module in modules {
            if let Some(layer) = module.first()
                && !LAYERS.iter().any(|(name, _)| name == layer)
            {
                broken.push(format!("src/{file}: module {layer} has no layer in the table"));
                continue;
            }
            for mention in tree.mentions(module) {
                if let Some(why) = judge(tree, module, &mention) {
                    broken.push(format!("src/{file}:{}: {why}", mention.line));
                }
            }
        }
    }
    broken.dedup();
    broken
}

fn judge(tree: &Tree, from: &Names, mention: &Mention) -> Option<String> {
    match &mention.target {
        Target::Foreign(path) => misplaced(from, path, mention.glob),
        // The crate root wires everything together.
        Target::Inside(_) if from.is_empty() => None,
        Target::Inside(path) => upward(tree, from, path, mention.glob),
    }
}

fn misplaced(from: &Names, path: &Names, glob: bool) -> Option<String> {
    let (name, homes) = FOREIGN.iter().find(|(name, _)| reaches(path, &split(name), glob))?;
    if homes.iter().any(|home| from.starts_with(&split(home))) {
        return None;
    }
    let folders: Vec<String> =
        homes.iter().map(|home| format!("src/{}", home.replace("::", "/"))).collect();
    Some(format!("{name} belongs under {}", folders.join(" and ")))
}

fn upward(tree: &Tree, from: &Names, path: &Names, glob: bool) -> Option<String> {
    let layer = from.first()?;
    let (_, known) = LAYERS.iter().find(|(name, _)| name == layer)?;
    let forbidden = LAYERS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| name != layer && !known.contains(name))
        .find(|name| reaches(path, &split(name), glob));
    if let Some(name) = forbidden {
        return Some(format!("{layer} must not know {name}"));
    }
    for (scope, strangers) in INSIDE.iter().filter(|(scope, _)| from.starts_with(&split(scope))) {
        if let Some(name) = strangers.iter().find(|name| reaches(path, &split(name), glob)) {
            return Some(format!("{scope} must not know {name}"));
        }
    }
    match (from.as_slice(), path.as_slice()) {
        ([cli, one, ..], [home, two, ..])
            if cli == "cli"
                && home == "cli"
                && one != two
                && !SHARED_BY_COMMANDS.contains(&two.as_str())
                && tree.has(&path[..2]) =>
        {
            Some(format!("cli::{one} must not know cli::{two}"))
        }
        _ => None,
    }
}

/// Whether a path leads into a module; a glob also reaches everything below its path.
fn reaches(path: &Names, module: &Names, glob: bool) -> bool {
    path.starts_with(module) || (glob && module.starts_with(path))
}

fn split(path: &str) -> Names {
    path.split("::").map(str::to_owned).collect()
}
