//! Runs the checker.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The checker's program, built once for all tests.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let script = repository().join("tests/peers/manifests.sh");
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "tests/peers/manifests.sh failed");
    PathBuf::from(String::from_utf8(built.stdout).unwrap().trim())
});

/// The flags of `jfs-csi`.
static FLAGS: LazyLock<String> = LazyLock::new(|| flags_of(env!("CARGO_BIN_EXE_jfs-csi")));

/// The mount options in docs/mount.md, including those for `-o`.
static OPTIONS: LazyLock<String> = LazyLock::new(|| {
    let page = std::fs::read_to_string(repository().join("docs/mount.md")).unwrap();
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    let mut options: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
    let short = page.split("`-o` takes").nth(1).and_then(|it| it.split("\n\n").next()).unwrap();
    options.extend(short.split('`').skip(1).step_by(2).map(|it| it.split('=').next().unwrap()));
    options.join(",")
});

/// The checker in a folder that contains `deploy/`.
pub struct Checker {
    folder: PathBuf,
}

/// The output of the checker.
pub struct Report {
    pub findings: Vec<String>,
    pub stdout: String,
    pub stderr: String,
}

impl Checker {
    pub fn here() -> Self {
        Self { folder: repository().to_owned() }
    }

    pub fn within(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    pub fn run(&self, args: &[&str]) -> Report {
        let output = Command::new(&*PROGRAM).args(args).current_dir(&self.folder).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let findings = match output.status.code() {
            Some(0) => Vec::new(),
            Some(1) => stdout.lines().map(str::to_owned).collect(),
            _ => vec![stderr.trim().to_owned()],
        };
        Report { findings, stdout, stderr }
    }

    pub fn check(&self, sources: &[&str]) -> Vec<String> {
        let known = ["check", "--flags", &FLAGS, "--options", &OPTIONS];
        self.run(&[&known, sources].concat()).findings
    }

    #[track_caller]
    pub fn passes(&self, sources: &[&str]) {
        let findings = self.check(sources);
        assert!(findings.is_empty(), "{sources:?}:\n{}", findings.join("\n"));
    }

    #[track_caller]
    pub fn agrees(&self, left: &str, right: &str) {
        let findings = self.run(&["same", left, right]).findings;
        assert!(findings.is_empty(), "{left} and {right} differ:\n{}", findings.join("\n"));
    }
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn flags_of(driver: &str) -> String {
    let help = Command::new(driver).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let mut flags: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
    flags.sort_unstable();
    flags.dedup();
    flags.join(",")
}
