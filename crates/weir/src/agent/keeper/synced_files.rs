//! Files that survive a crash of the machine.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Suffix of files being written.
const TEMPORARY: &str = "weir_tmp";

pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}

/// Replaces a file in one step; an existing one keeps its mode.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(0o600, |found| found.mode() & 0o777);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(TEMPORARY);
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// A missing file or folder is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(cause) => Err(cause),
    };
    match removed {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

pub struct CopyLimits {
    pub files: u32,
    pub bytes: u64,
}

/// Copies into a folder over what it has, and syncs all. Error `FileTooLarge`: the budget is used up.
pub fn copy_into(from: &Path, to: &Path, budget: &mut CopyLimits, is_wanted: &dyn Fn(&OsStr) -> bool) -> io::Result<()> {
    make_folder(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if is_wanted(&entry.file_name()) {
            copy_entry(&entry.path(), &to.join(entry.file_name()), budget)?;
        }
    }
    sync_folder(to)
}

fn copy_entry(from: &Path, to: &Path, budget: &mut CopyLimits) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    budget.files = budget.files.checked_sub(1).ok_or(ErrorKind::FileTooLarge)?;
    if found.is_dir() {
        if !fs::symlink_metadata(to).is_ok_and(|there| there.is_dir()) {
            remove(to)?;
        }
        return copy_into(from, to, budget, &|_| true);
    }
    if found.is_symlink() {
        remove(to)?;
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    budget.bytes = budget.bytes.checked_sub(found.len()).ok_or(ErrorKind::FileTooLarge)?;
    if fs::symlink_metadata(to).is_ok_and(|there| !there.is_file()) {
        remove(to)?;
    }
    write(to, &fs::read(from)?)?;
    fs::set_permissions(to, Permissions::from_mode(found.mode() & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_over_what_is_there() {
        let folder = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir_all(to.join("b")).unwrap();
        write(&from.join("a"), b"1").unwrap();
        write(&from.join("b"), b"2").unwrap();
        write(&from.join("skipped"), b"3").unwrap();
        write(&from.join("sub/c"), b"4").unwrap();
        std::os::unix::fs::symlink("a", from.join("link")).unwrap();
        let mut budget = CopyLimits { files: 10, bytes: 100 };
        copy_into(&from, &to, &mut budget, &|name| name != "skipped").unwrap();
        assert_eq!((budget.files, budget.bytes), (5, 97));
        let read = |name: &str| fs::read_to_string(to.join(name)).ok();
        assert_eq!(
            [read("a"), read("b"), read("sub/c"), read("link"), read("skipped")].map(Option::unwrap_or_default),
            ["1", "2", "4", "1", ""]
        );
        let small = copy_into(&from, &to, &mut CopyLimits { files: 10, bytes: 2 }, &|_| true);
        assert_eq!(small.map_err(|cause| cause.kind()), Err(ErrorKind::FileTooLarge));
        assert!(remove(&folder).is_ok() && remove(&folder).is_ok());
    }
}
