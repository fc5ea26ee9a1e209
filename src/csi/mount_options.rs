//! Parses the mount options of a class, a PV or a pod, and checks that their author may use them.

use crate::error::{Error, Result};
use crate::options::comma_list;
use crate::options::mount::MountArgs;
use crate::policy::{Author, Policy};

/// Parsed options, and descriptions of those without effect.
#[derive(Debug)]
pub struct ParsedOptions {
    pub args: MountArgs,
    pub unused: Vec<String>,
}

/// Parses lists of options; later lists override earlier ones. Refuses unknown options and options
/// that the author may not use, by name.
pub fn read(policy: &Policy, author: Author, lists: &[&str]) -> Result<ParsedOptions> {
    let mut args = MountArgs::from_lists(lists.iter().copied())
        .map_err(|error| Error::bad_input(format!("mount options: {error:#}")))?;
    let names = lists.iter().flat_map(|list| comma_list::pairs(list)).map(|(name, _)| name);
    let set_by_node = policy.check_options(author, names)?;
    if let Some(dir) = &args.cache.cache_dir {
        policy.check_cache_dir(dir)?;
    }
    if set_by_node.contains(&"cache-dir") {
        args.cache.cache_dir = None;
    }
    let why = "the node configures its cache";
    let mut unused: Vec<String> =
        set_by_node.iter().map(|name| format!("mount option {name}: {why}")).collect();
    let mut of_a_process = args.process.process_only();
    // The address is not resolved: that could take long.
    of_a_process.extend(args.metrics.metrics.take().map(|_| "metrics"));
    let why = "one process serves all volumes";
    unused.extend(of_a_process.iter().map(|name| format!("mount option {name}: {why}")));
    Ok(ParsedOptions { args, unused })
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::policy::Flags;

    fn policy() -> std::sync::Arc<Policy> {
        Policy::new(Flags::default()).unwrap()
    }

    #[test]
    fn the_policy_knows_every_mount_option() {
        let command = MountArgs::augment_args(Command::new("mount"));
        for name in command.get_arguments().filter_map(clap::Arg::get_long) {
            let judged = policy().check_options(Author::Administrator, [name]);
            judged.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn options_that_the_node_decides_are_reported_and_not_used() {
        let lists = ["cache-dir=/data/cache,free-space-ratio=0.5", "writeback,log=/x,metrics=a:1"];
        let parsed = read(&policy(), Author::Administrator, &lists).unwrap();
        assert_eq!((parsed.args.cache.cache_dir, parsed.args.cache.writeback), (None, true));
        assert!(parsed.args.metrics.metrics.is_none());
        for name in ["cache-dir", "free-space-ratio", "log", "metrics"] {
            assert!(parsed.unused.iter().any(|text| text.contains(name)), "{:?}", parsed.unused);
        }
    }

    #[test]
    fn no_spelling_of_an_option_evades_the_policy() {
        for list in ["suid", " suid ,", "ro,suid", "dev", "cache-dir=memory", "cache-dir =memory"] {
            read(&policy(), Author::Administrator, &[list]).unwrap_err();
        }
        for list in ["bucket=x", "storage=file", "subdir=/", "--bucket=x", "-o suid", "o=suid"] {
            read(&policy(), Author::Pod, &[list]).unwrap_err();
        }
    }
}
