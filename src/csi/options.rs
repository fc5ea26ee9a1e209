//! Mount options of a volume, as a class, a PV or a pod gives them: read, and judged by who gives
//! them.

use crate::error::{Error, Result};
use crate::options::comma_list;
use crate::options::mount::MountArgs;
use crate::policy::{Author, Policy};

/// What was said, and what of it has no effect.
#[derive(Debug)]
pub struct Said {
    pub args: MountArgs,
    pub unused: Vec<String>,
}

/// Reads lists of options, later ones before earlier ones. What is unknown is refused by name, and so
/// is what its author may not say.
pub fn read(policy: &Policy, author: Author, lists: &[&str]) -> Result<Said> {
    let mut args = MountArgs::from_lists(lists.iter().copied())
        .map_err(|error| Error::bad_input(format!("mount options: {error:#}")))?;
    let names = lists.iter().flat_map(|list| comma_list::pairs(list)).map(|(name, _)| name);
    let decided = policy.check_options(author, names)?;
    if let Some(dir) = &args.cache.cache_dir {
        policy.check_cache_dir(dir)?;
    }
    if decided.contains(&"cache-dir") {
        args.cache.cache_dir = None;
    }
    let why = "the node decides how its cache is kept";
    let mut unused: Vec<String> =
        decided.iter().map(|name| format!("mount option {name}: {why}")).collect();
    let mut of_a_process = args.process.process_only();
    // Not even looked at: it may be a name, and resolving it takes time.
    of_a_process.extend(args.metrics.metrics.take().map(|_| "metrics"));
    let why = "there is one process for all volumes";
    unused.extend(of_a_process.iter().map(|name| format!("mount option {name}: {why}")));
    Ok(Said { args, unused })
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
    fn every_option_of_a_mount_has_been_judged() {
        let command = MountArgs::augment_args(Command::new("mount"));
        for name in command.get_arguments().filter_map(clap::Arg::get_long) {
            let judged = policy().check_options(Author::Administrator, [name]);
            judged.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn what_the_node_decides_is_told_and_not_used() {
        let lists = ["cache-dir=/data/cache,free-space-ratio=0.5", "writeback,log=/x,metrics=a:1"];
        let said = read(&policy(), Author::Administrator, &lists).unwrap();
        assert_eq!((said.args.cache.cache_dir, said.args.cache.writeback), (None, true));
        assert!(said.args.metrics.metrics.is_none());
        for name in ["cache-dir", "free-space-ratio", "log", "metrics"] {
            assert!(said.unused.iter().any(|text| text.contains(name)), "{:?}", said.unused);
        }
    }

    #[test]
    fn a_spelling_does_not_get_past_the_list() {
        for list in ["suid", " suid ,", "ro,suid", "dev", "cache-dir=memory", "cache-dir =memory"] {
            read(&policy(), Author::Administrator, &[list]).unwrap_err();
        }
        for list in ["bucket=x", "storage=file", "subdir=/", "--bucket=x", "-o suid", "o=suid"] {
            read(&policy(), Author::Pod, &[list]).unwrap_err();
        }
    }
}
