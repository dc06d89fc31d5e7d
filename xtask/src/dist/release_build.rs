//! The program of a release, and the files that the program itself writes: manual pages, completions, the sample configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Release, run_tool};
use crate::cargo::{cargo, run_to_end};

/// Shells with completions.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Files in the folder of a release under way.
pub struct BuiltRelease {
    /// Without symbols.
    pub program: PathBuf,
    /// Compressed manual pages, in `man1` and `man5`.
    pub manual: PathBuf,
    /// A file of each shell, named by it.
    pub completions: PathBuf,
    pub sample: PathBuf,
}

impl BuiltRelease {
    pub fn build(release: &Release, profile: &str) -> Result<Self> {
        run_to_end(&mut cargo(&["build", "--locked", "--package=weir", "--bin=weir", "--profile", profile]))?;
        // Cargo's folder of the profile `dev` has another name.
        let folder = if profile == "dev" { "debug" } else { profile };
        let linked = crate::target_folder()?.join(folder).join("weir");
        let work = &release.work;
        let built = Self {
            program: work.join("weir"),
            manual: work.join("man"),
            completions: work.join("completions"),
            sample: work.join("pgpool.conf.sample"),
        };
        run_tool(release, Command::new("strip").arg("-o").arg(&built.program).arg(&linked))?;
        run_tool(release, Command::new(&built.program).arg("man").arg(&built.manual))?;
        for section in ["man1", "man5"] {
            compress_all(release, &built.manual.join(section))?;
        }
        fs::create_dir_all(&built.completions)?;
        for shell in SHELLS {
            fs::write(built.completions.join(shell), said(&built.program, &["completions", shell])?)?;
        }
        fs::write(&built.sample, said(&built.program, &["sample-config"])?)?;
        Ok(built)
    }

    /// Manual pages, with their section's folder before the name.
    pub fn manual_pages(&self) -> Result<Vec<String>> {
        let mut pages = Vec::new();
        for section in ["man1", "man5"] {
            for entry in fs::read_dir(self.manual.join(section))? {
                pages.push(format!("{section}/{}", entry?.file_name().to_string_lossy()));
            }
        }
        pages.sort();
        Ok(pages)
    }
}

/// Compresses every file, without its time.
fn compress_all(release: &Release, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        run_tool(release, Command::new("gzip").args(["-9", "--no-name"]).arg(entry?.path()))?;
    }
    Ok(())
}

fn said(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
