//! A data folder that `initdb` made once, and of which many clusters begin with a copy.
//!
//! `initdb` takes a second of a processor, a copy a tenth of that. Invariant: no two copies have the same system
//! identifier, as if `initdb` had made each.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::control_file;
use crate::folder::{Folder, copy_tree, make_private};
use crate::process::Launch;
use crate::programs::{Programs, RunAs};

/// Tried in this order: the first knows letters beyond ASCII, the second exists everywhere.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];
/// Characters of the name of a segment of WAL.
const SEGMENT_NAME_CHARS: usize = 24;

/// The data folder of a server that has never run. Dropping it removes it.
#[derive(Debug)]
pub struct Template {
    programs: Programs,
    folder: Folder,
    copies: AtomicU64,
}

impl Template {
    /// Runs `initdb` of these programs in a temporary folder.
    pub fn new(programs: Programs) -> Result<Template> {
        let launch = Launch::new()?;
        let template = Template { programs, folder: Folder::temporary(launch.run_as)?, copies: AtomicU64::new(0) };
        init_data(&template.programs, launch.run_as, template.folder.path(), &template.data())?;
        Ok(template)
    }

    /// The programs that made it.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Its temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the data folder `to` of another server. `heed` gets the bytes of each piece that is copied.
    pub(crate) fn copy_to(&self, to: &Path, run_as: RunAs, heed: &mut dyn FnMut(u64)) -> Result<()> {
        make_private(to, run_as)?;
        copy_tree(&self.data(), to, run_as, &|_| false, heed)?;
        let number = self.copies.fetch_add(1, Ordering::Relaxed) + 1;
        name_anew(to, number)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("template")
    }
}

/// Runs initdb in `folder`. `--no-sync` because nothing here is meant to outlive the machine's next crash.
pub(crate) fn init_data(programs: &Programs, run_as: RunAs, folder: &Path, data: &Path) -> Result<()> {
    let mut output = run_initdb(programs, run_as, folder, data, LOCALES[0])?;
    if !output.status.success() {
        output = run_initdb(programs, run_as, folder, data, LOCALES[1])?;
    }
    if !output.status.success() {
        bail!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn run_initdb(programs: &Programs, run_as: RunAs, folder: &Path, data: &Path, locale: &str) -> Result<Output> {
    let program = programs.bin().join("initdb");
    let mut command = run_as.command(&program, folder);
    command.args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]);
    command.arg(format!("--locale={locale}")).arg("-D").arg(data);
    command.output().with_context(|| format!("cannot run {}", program.display()))
}

/// Adds `number` to the system identifier of a server that has never run: in its control file, and in its only segment of WAL.
fn name_anew(data: &Path, number: u64) -> Result<()> {
    let control = data.join("global/pg_control");
    let mut bytes = fs::read(&control)?;
    let identifier = control_file::identifier(&bytes)?;
    let anew = identifier.wrapping_add(number);
    control_file::set_identifier(&mut bytes, anew).with_context(|| format!("cannot change {}", control.display()))?;
    fs::write(&control, bytes)?;
    let segment = only_segment(&data.join("pg_wal"))?;
    let file = File::options().read(true).write(true).open(&segment)?;
    let mut named = [0; size_of::<u64>()];
    file.read_exact_at(&mut named, control_file::IDENTIFIER_IN_SEGMENT)?;
    ensure!(u64::from_ne_bytes(named) == identifier, "{} is not of the server {identifier}", segment.display());
    file.write_all_at(&anew.to_ne_bytes(), control_file::IDENTIFIER_IN_SEGMENT)?;
    Ok(())
}

fn only_segment(wal: &Path) -> Result<PathBuf> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(wal)? {
        let entry = entry?;
        if entry.file_name().len() == SEGMENT_NAME_CHARS {
            segments.push(entry.path());
        }
    }
    ensure!(segments.len() == 1, "{} holds {} segments, and not the one of initdb", wal.display(), segments.len());
    Ok(segments.remove(0))
}
