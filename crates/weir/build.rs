//! Names the commit in the version, where there is one to name. Runs git, which needs no network.
//!
//! `WEIR_COMMIT` names it where the sources have no history, as for packages; without both the version is the number alone.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    let number = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let named = std::env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let version = named.or_else(commit).map_or(number.clone(), |commit| format!("{number} {commit}"));
    println!("cargo::rustc-env=WEIR_VERSION={version}");
}

/// The commit of this repository's HEAD. `None` also if the sources lie in a folder of somebody else's repository.
fn commit() -> Option<String> {
    if git(&["rev-parse", "--show-prefix"])? != "crates/weir/" {
        return None;
    }
    // Its log has a new line with each change of HEAD; where no log is kept, a new commit on the same branch is noticed late.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if std::path::Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=9", "HEAD"])
}

/// The output of git in one line. `None`: there is no git, or it refuses.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
