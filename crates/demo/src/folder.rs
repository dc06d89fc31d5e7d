//! The folder of a cluster: made with the right owner, filled, and removed at the end.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, bail, ensure};

use crate::programs::RunAs;

/// Longest folder: a unix socket's path has 107 bytes (sun_path), and `/.s.PGSQL.65535` takes 15 of them.
const PATH_BYTES_MAX: usize = 92;
/// Names tried for a temporary folder before we give up; each taken one is another cluster of this process.
const NAMES_MAX: u32 = 10_000;
const COPY_BLOCK_BYTES: usize = 64 * 1024;
static ZEROS: [u8; COPY_BLOCK_BYTES] = [0; COPY_BLOCK_BYTES];

/// A folder that is ours. Dropping it removes our files in it, unless it is to be kept.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    end: End,
}

/// Fate of the folder at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    Remove,
    /// The folder was there before us: only its contents go.
    Empty,
}

impl Folder {
    /// A new folder in the system's place for temporary ones.
    pub(crate) fn temporary(run_as: RunAs) -> Result<Folder> {
        let base = env::temp_dir();
        for number in 0..NAMES_MAX {
            let path = base.join(format!("weir-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Folder { path, end: End::Remove }.prepared(run_as),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
            }
        }
        bail!("{} holds {NAMES_MAX} folders of this process already", base.display())
    }

    /// `path`, created if missing. Error: it holds something; we would have to remove it in the end.
    pub(crate) fn at(path: &Path, run_as: RunAs) -> Result<Folder> {
        let end = if path.exists() { End::Empty } else { End::Remove };
        let text = path.to_str().filter(|text| !text.contains(['\'', '\\', '\n', '\r']));
        ensure!(text.is_some(), "the folder {path:?} has characters that do not fit into a configuration: choose another");
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.with_context(|| format!("cannot create the folder {}", path.display()))?;
        let path = path.canonicalize()?;
        ensure!(fs::read_dir(&path)?.next().is_none(), "the folder {} is not empty", path.display());
        Folder { path, end }.prepared(run_as)
    }

    /// From now on the contents stay.
    pub(crate) fn keep(&mut self) {
        self.end = End::Keep;
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn prepared(self, run_as: RunAs) -> Result<Folder> {
        let bytes = self.path.as_os_str().len();
        let text = self.path.display();
        ensure!(bytes <= PATH_BYTES_MAX, "the path {text} has {bytes} bytes, a folder with sockets may have {PATH_BYTES_MAX}");
        if let RunAs::User { uid, gid } = run_as {
            let closed = self.path.ancestors().skip(1).find(|folder| !may_enter(folder, uid, gid));
            if let Some(folder) = closed {
                bail!("the servers run as user {uid}, who may not enter {}; choose another folder", folder.display());
            }
        }
        give(&self.path, run_as)?;
        Ok(self)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody can act on an error here, and a leftover folder harms nothing.
        let _ = match self.end {
            End::Keep => Ok(()),
            End::Remove => fs::remove_dir_all(&self.path),
            End::Empty => empty(&self.path),
        };
    }
}

/// Creates a folder that only its owner may see; PostgreSQL insists on that for data folders.
pub(crate) fn make_private(path: &Path, run_as: RunAs) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).with_context(|| format!("cannot create {}", path.display()))?;
    give(path, run_as)
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, contents: &[u8], run_as: RunAs) -> Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    give(path, run_as)
}

/// Removes the contents of a folder, not the folder.
pub(crate) fn empty(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}

/// Copies the contents of `from` into the existing folder `to`, except the files and folders `skip` names.
///
/// `skip` gets paths relative to the first folder. Files that vanish during the copy are no error: a running server
/// removes some. `heed` gets the bytes of each piece that is copied.
pub(crate) fn copy_tree(
    from: &Path,
    to: &Path,
    run_as: RunAs,
    skip: &dyn Fn(&Path) -> bool,
    heed: &mut dyn FnMut(u64),
) -> Result<()> {
    TreeCopy { from, to, run_as, skip, heed }.level(Path::new(""))
}

struct TreeCopy<'a> {
    from: &'a Path,
    to: &'a Path,
    run_as: RunAs,
    skip: &'a dyn Fn(&Path) -> bool,
    heed: &'a mut dyn FnMut(u64),
}

impl TreeCopy<'_> {
    fn level(&mut self, below: &Path) -> Result<()> {
        for entry in fs::read_dir(self.from.join(below))? {
            let entry = entry?;
            let name = below.join(entry.file_name());
            if (self.skip)(&name) {
                continue;
            }
            let target = self.to.join(&name);
            if entry.file_type()?.is_dir() {
                make_private(&target, self.run_as)?;
                self.level(&name)?;
                continue;
            }
            match copy_file(&entry.path(), &target, self.heed) {
                Ok(()) => give(&target, self.run_as)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot copy {}", entry.path().display())),
            }
        }
        Ok(())
    }
}

/// Bytes of all files below a folder of a server that does not run.
pub(crate) fn tree_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { tree_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Copies a file but for blocks of zeros, which the system makes up when they are read: a new segment of WAL holds nearly nothing else, and
/// memory for them would be most of a server's.
fn copy_file(from: &Path, to: &Path, heed: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut source = File::open(from)?;
    let target = File::create(to)?;
    let about = source.metadata()?;
    target.set_permissions(about.permissions())?;
    let (mut block, mut at) = (vec![0; COPY_BLOCK_BYTES], 0);
    loop {
        let count = source.read(&mut block)?;
        if count == 0 {
            // Zeros at the end were left out, too.
            return target.set_len(at);
        }
        if block[..count] != ZEROS[..count] {
            target.write_all_at(&block[..count], at)?;
        }
        at += count as u64;
        heed(count as u64);
    }
}

fn give(path: &Path, run_as: RunAs) -> Result<()> {
    match run_as {
        RunAs::Ourselves => Ok(()),
        RunAs::User { uid, gid } => {
            chown(path, Some(uid), Some(gid)).with_context(|| format!("cannot give {} to user {uid}", path.display()))
        }
    }
}

fn may_enter(folder: &Path, uid: u32, gid: u32) -> bool {
    let Ok(about) = fs::metadata(folder) else { return false };
    let bit = match (about.uid() == uid, about.gid() == gid) {
        (true, _) => 0o100,
        (false, true) => 0o010,
        (false, false) => 0o001,
    };
    about.mode() & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_ours_goes_and_a_given_one_is_only_emptied() {
        let outer = Folder::temporary(RunAs::Ourselves).unwrap();
        let given = outer.path().join("given");
        fs::create_dir(&given).unwrap();
        let inner = Folder::at(&given, RunAs::Ourselves).unwrap();
        write_private(&inner.path().join("file"), b"text", RunAs::Ourselves).unwrap();
        let error = Folder::at(&given, RunAs::Ourselves).unwrap_err().to_string();
        assert!(error.ends_with("is not empty"), "{error}");
        drop(inner);
        assert!(fs::read_dir(&given).unwrap().next().is_none());
        let path = outer.path().to_owned();
        drop(outer);
        assert!(!path.exists());
    }

    #[test]
    fn a_copy_holds_all_bytes_and_no_room_for_zeros() {
        let outer = Folder::temporary(RunAs::Ourselves).unwrap();
        let (from, to) = (outer.path().join("from"), outer.path().join("to"));
        let zeros = vec![0; 16 * COPY_BLOCK_BYTES];
        let cases: [&[&[u8]]; 5] =
            [&[], &[b"a"], &[&zeros], &[b"a", &zeros, b"b"], &[&zeros, &zeros, b"c", &zeros, b"d", &zeros]];
        for parts in cases {
            fs::write(&from, parts.concat()).unwrap();
            fs::set_permissions(&from, Permissions::from_mode(0o640)).unwrap();
            let mut heard = 0;
            copy_file(&from, &to, &mut |bytes| heard += bytes).unwrap();
            assert!(fs::read(&to).unwrap() == parts.concat());
            assert_eq!(heard, parts.concat().len() as u64, "progress counts zeros, too");
            let about = fs::metadata(&to).unwrap();
            assert_eq!(about.mode() & 0o777, 0o640);
            let kept = parts.iter().filter(|part| part.len() == 1).count() * 2 * COPY_BLOCK_BYTES;
            assert!(about.blocks() * 512 <= kept as u64, "{} blocks for {kept} bytes", about.blocks());
        }
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let outer = Folder::temporary(RunAs::Ourselves).unwrap();
        let error = Folder::at(&outer.path().join("x".repeat(92)), RunAs::Ourselves).unwrap_err().to_string();
        assert!(error.contains("a folder with sockets may have 92"), "{error}");
    }
}
