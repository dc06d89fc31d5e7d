//! Files in folders where others may write, such as `/tmp`: those of other users are not read, written or followed.
//!
//! Others can plant a file, link or pipe. So a file is opened without waiting or following a link, then checked by its
//! descriptor.

use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const BYTES_MAX: u64 = 16 << 20;

const NAMES_MAX: u32 = 100;

const WRITABLE: u32 = 0o022;

/// Error `PermissionDenied`: others than root and the process's user can have written the file.
pub fn read(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags(path)).open(path).map_err(|cause| explain(path, cause))?;
    let about = file.metadata()?;
    check_owner(&about)?;
    if about.mode() & WRITABLE != 0 {
        return Err(refused(format!("others may write it (mode {:04o})", about.mode() & 0o7777)));
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens or creates a file. Error `PermissionDenied`: another user's in a shared folder. `options` must not truncate.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if !is_shared(path) {
        return options.open(path);
    }
    let file = options.custom_flags(flags(path)).open(path).map_err(|cause| explain(path, cause))?;
    let about = file.metadata()?;
    check_owner(&about)?;
    if about.nlink() > 1 {
        return Err(refused("it has another name elsewhere".into()));
    }
    Ok(file)
}

/// Replaces a file atomically, also in a crash.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (beside, mut file) = beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, path));
    if let Err(cause) = written {
        let _ = fs::remove_file(&beside);
        return Err(cause);
    }
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Creates a temporary file, skipping names already taken.
fn beside(path: &Path) -> io::Result<(std::path::PathBuf, File)> {
    for number in 0..NAMES_MAX {
        let beside = path.with_extension(format!("{}-{number}.new", std::process::id()));
        let _ = fs::remove_file(&beside);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (beside, file)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "all names beside it are taken"))
}

/// True if others can put files into the file's folder.
pub fn is_shared(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::metadata(folder).map_or(true, |about| about.mode() & 0o002 != 0 || !is_trusted(&about))
}

/// Never waits for a pipe; follows no link in a shared folder.
fn flags(path: &Path) -> i32 {
    let never = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = if is_shared(path) { never | OFlags::NOFOLLOW } else { never };
    i32::try_from(flags.bits()).unwrap_or_default()
}

fn is_trusted(about: &Metadata) -> bool {
    let own = rustix::process::geteuid();
    about.uid() == own.as_raw() || about.uid() == 0
}

fn check_owner(about: &Metadata) -> io::Result<()> {
    if !about.is_file() {
        return Err(refused("it is no regular file".into()));
    }
    if !is_trusted(about) {
        let own = rustix::process::geteuid().as_raw();
        return Err(refused(format!("it belongs to user {}, and Weir runs as user {own}", about.uid())));
    }
    Ok(())
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn explain(path: &Path, cause: io::Error) -> io::Error {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() && is_shared(path) => {
            refused("it is a symbolic link in a folder that others may write in".into())
        }
        Ok(_) | Err(_) => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// A folder, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str, mode: u32) -> Place {
            let folder = std::env::temp_dir().join(format!("weir-own-files-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            Place(folder)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn why(outcome: io::Result<impl Sized>) -> String {
        outcome.err().map(|cause| cause.to_string()).unwrap_or_default()
    }

    fn writing() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        options
    }

    #[test]
    fn a_file_is_replaced_whole_and_leaves_nothing_beside() {
        let place = Place::new("replace", 0o700);
        let path = place.0.join("weir_failover.5432");
        for text in ["one\n", "another, which is longer\n", "x"] {
            replace(&path, text).unwrap();
            assert_eq!(read(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(why(read(&path)), "others may write it (mode 0666)");
        let other = place.0.join("other");
        fs::create_dir(place.0.join(format!("other.{}-0.new", std::process::id()))).unwrap();
        replace(&other, "a name that is taken is passed over").unwrap();
        assert!(read(&other).is_ok());
    }

    #[test]
    fn in_a_folder_of_all_no_link_and_no_pipe_stands_for_a_file_of_ours() {
        let (shared, private) = (Place::new("shared", 0o1777), Place::new("private", 0o700));
        let precious = private.0.join("precious");
        fs::write(&precious, "precious").unwrap();
        for folder in [&shared.0, &private.0] {
            symlink(&precious, folder.join("link")).unwrap();
            fs::hard_link(&precious, folder.join("hard")).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        }
        let link = "it is a symbolic link in a folder that others may write in";
        assert_eq!(why(read(&shared.0.join("link"))), link);
        assert_eq!(why(open(&shared.0.join("link"), &mut writing())), link);
        assert_eq!(why(open(&shared.0.join("hard"), &mut writing())), "it has another name elsewhere");
        assert_eq!(why(read(&shared.0.join("pipe"))), "it is no regular file", "and nobody waits for a writer");
        assert_eq!(why(read(&private.0.join("pipe"))), "it is no regular file");
        assert_eq!(read(&private.0.join("link")).unwrap(), "precious", "an operator's link in a folder of ours");
        assert!(open(&private.0.join("link"), &mut writing()).is_ok());
        assert!(open(&shared.0.join("new"), &mut writing()).is_ok());
        assert_eq!(read(&precious).unwrap(), "precious");
    }

    #[test]
    fn a_file_of_somebody_else_is_not_read_nor_written() {
        let place = Place::new("owner", 0o1777);
        let path = place.0.join("theirs");
        fs::write(&path, "down").unwrap();
        // Only root can give files away.
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            assert!(why(read(&path)).starts_with("it belongs to user 65534, and Weir runs as user "));
            assert!(why(open(&path, &mut writing())).starts_with("it belongs to user 65534"));
        }
    }
}
