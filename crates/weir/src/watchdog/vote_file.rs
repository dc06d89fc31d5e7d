//! The file of this host's vote, `weir_group.PORT`: owned by one process, and replaced whole.
//!
//! The lock is on the file itself, not on one beside it: whoever finds a file without a lock finds a member that nobody plays. Each new file is
//! locked before it gets the name. So a file that is deleted makes a new member of the next process, and never a second one of the same number.
//! A crash leaves the file of before or after a write, and at most one beside it.

use rustix::fs::{FlockOperation, OFlags, flock, statfs};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_group::{HostNumber, MemberId, StoredVote, VOTE_BYTES_MAX, VoteTextError};

/// Others may create or replace the file between two steps of an opening.
const TRIES_MAX: u32 = 100;

const OTHERS_WRITE: u32 = 0o022;
const ALL_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// File systems in memory, by their numbers. Source: statfs(2).
const IN_MEMORY: [(u32, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")];

/// Why a vote cannot be used. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum VoteFileError {
    #[error("{}: {cause}; wd_state_dir must be a folder that Weir may write to", folder.display())]
    Folder { folder: PathBuf, cause: io::Error },
    #[error("{} {why}, so that others can replace files in it; wd_state_dir must be a folder of Weir's own", folder.display())]
    SharedFolder { folder: PathBuf, why: String },
    #[error(
        "{} belongs to another Weir that runs; stop it, or give each a port or a wd_state_dir of its own: two processes must not vote as one \
         member",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("{} cannot be locked: {cause}; wd_state_dir must be on a file system with locks", path.display())]
    Unlockable { path: PathBuf, cause: io::Error },
    #[error("{} cannot be read: {cause}; let Weir's user read and write it, or {WAY_OUT}", path.display())]
    Open { path: PathBuf, cause: io::Error },
    #[error("{} is not used: {why}; {WAY_OUT}", path.display())]
    Untrusted { path: PathBuf, why: String },
    #[error("{} cannot be used: {cause}; {WAY_OUT}", path.display())]
    Text { path: PathBuf, cause: VoteTextError },
    #[error(
        "{} is the vote of host {stored}, and this is host {host} by pgpool_node_id; correct that, or {WAY_OUT}",
        path.display()
    )]
    OtherHost { path: PathBuf, stored: HostNumber, host: HostNumber },
    #[error("{} cannot be written: {cause}; wd_state_dir must be a folder that Weir may write to", path.display())]
    Create { path: PathBuf, cause: io::Error },
    #[error("{} is replaced again and again by others; wd_state_dir must be a folder of Weir's own", path.display())]
    Unsteady { path: PathBuf },
}

const WAY_OUT: &str = "delete it: this host is then a new member, which the others must admit";

/// To be told to the operator, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoteNotice {
    /// No vote was there.
    NewMember { path: PathBuf },
    /// A restart of the machine loses the vote.
    InMemory { folder: PathBuf, kind: &'static str },
}

impl std::fmt::Display for VoteNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VoteNotice::NewMember { path } => write!(f, "{} is new: this host is a new member of the group", path.display()),
            VoteNotice::InMemory { folder, kind } => write!(
                f,
                "{} is in memory ({kind}): a restart of the machine loses this host's vote, and the others must admit it as a new member; \
                 set wd_state_dir to a folder on a disk",
                folder.display()
            ),
        }
    }
}

/// The locked file. Blocks: for a thread that may wait for a disk.
#[derive(Debug)]
pub struct VoteFile {
    folder: PathBuf,
    path: PathBuf,
    /// Where the next text is written. Of this member alone, so that none of another is ever taken for its own.
    beside: PathBuf,
    held: File,
}

impl VoteFile {
    /// Takes the file of this port, or makes that of a new member with a random `incarnation`, on disk before this returns.
    pub fn open(
        folder: &Path,
        port: u16,
        host: HostNumber,
        incarnation: u32,
    ) -> Result<(VoteFile, StoredVote, Vec<VoteNotice>), VoteFileError> {
        check_folder(folder)?;
        let path = folder.join(format!("weir_group.{port}"));
        let mut notices = Vec::new();
        for _ in 0..TRIES_MAX {
            let taken = match take(&path)? {
                Some(held) => Some((read(&path, &held, host)?, held)),
                None => {
                    let vote = StoredVote::new(MemberId { host, incarnation });
                    let made = create(&path, &beside(&path, incarnation), &vote);
                    made.map_err(|cause| VoteFileError::Create { path: path.clone(), cause })?.map(|held| {
                        notices.push(VoteNotice::NewMember { path: path.clone() });
                        (vote, held)
                    })
                }
            };
            let Some((vote, held)) = taken else { continue };
            let beside = beside(&path, vote.member.incarnation);
            let _ = fs::remove_file(&beside);
            // The file of a process that was killed may not be on disk under its name yet.
            sync_folder(folder).map_err(|cause| VoteFileError::Folder { folder: folder.to_owned(), cause })?;
            notices.extend(kind_in_memory(folder).map(|kind| VoteNotice::InMemory { folder: folder.to_owned(), kind }));
            return Ok((VoteFile { folder: folder.to_owned(), path, beside, held }, vote, notices));
        }
        Err(VoteFileError::Unsteady { path })
    }

    /// Replaces the text. When this returns it outlives a crash of the machine. Error: nothing may be said of what is on disk.
    pub fn replace(&mut self, text: &str) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(there) if !is_same(&self.held.metadata()?, &there) => return Err(io::Error::other("somebody else replaced it")),
            Ok(_) => {}
            // Deleted meanwhile. The name is taken only if it is still free then.
            Err(cause) if cause.kind() == ErrorKind::NotFound => {
                let file = write_beside(&self.beside, text)?;
                let named = name_first(&self.beside, &self.path);
                named.and_then(|()| sync_folder(&self.folder))?;
                self.held = file;
                return Ok(());
            }
            Err(cause) => return Err(cause),
        }
        let file = write_beside(&self.beside, text)?;
        if let Err(cause) = fs::rename(&self.beside, &self.path) {
            let _ = fs::remove_file(&self.beside);
            return Err(cause);
        }
        self.held = file;
        sync_folder(&self.folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for VoteFile {
    /// A child between fork and exec may still have the descriptor, and with it the lock.
    fn drop(&mut self) {
        let _ = flock(&self.held, FlockOperation::Unlock);
    }
}

/// The mark of a process that keeps sessions after another one took its member over: a lock beside the vote, shared by all of them. A process that is
/// started in the ordinary way finds by it that another one may still write.
#[derive(Debug)]
pub struct FormerMark {
    held: File,
}

impl FormerMark {
    /// `vote`: the file of the member.
    pub fn set(vote: &Path) -> io::Result<FormerMark> {
        let path = former_path(vote);
        let held = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        if let Some(why) = distrust_of_file(&held.metadata()?) {
            return Err(io::Error::other(why));
        }
        flock(&held, FlockOperation::NonBlockingLockShared)?;
        Ok(FormerMark { held })
    }

    /// True if a process has set it. An error counts as set: whoever asks waits for a lease in vain.
    pub fn is_set(vote: &Path) -> bool {
        let options = OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(former_path(vote));
        match options {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(cause) => cause.kind() != ErrorKind::NotFound,
        }
    }
}

impl Drop for FormerMark {
    /// A child may still have the descriptor, as with the vote.
    fn drop(&mut self) {
        let _ = flock(&self.held, FlockOperation::Unlock);
    }
}

fn former_path(vote: &Path) -> PathBuf {
    vote.with_added_extension("former")
}

fn check_folder(folder: &Path) -> Result<(), VoteFileError> {
    let unusable = |cause| VoteFileError::Folder { folder: folder.to_owned(), cause };
    let about = fs::metadata(folder).map_err(unusable)?;
    if !about.is_dir() {
        return Err(unusable(ErrorKind::NotADirectory.into()));
    }
    match distrust_of_folder(about.uid(), about.mode(), own_user()) {
        Some(why) => Err(VoteFileError::SharedFolder { folder: folder.to_owned(), why }),
        None => Ok(()),
    }
}

/// In a sticky folder others may not touch files of ours.
fn distrust_of_folder(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != own && owner != 0 {
        return Some(format!("belongs to user {owner}, and Weir runs as user {own}"));
    }
    let is_open = mode & ALL_WRITE != 0 && mode & STICKY == 0;
    is_open.then(|| format!("may be written by everybody (mode {:04o})", mode & 0o7777))
}

fn distrust_of_file(about: &Metadata) -> Option<String> {
    if !about.is_file() {
        return Some("it is no regular file".into());
    }
    distrust_of_owner(about.uid(), about.mode(), own_user())
}

fn distrust_of_owner(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != own && owner != 0 {
        return Some(format!("it belongs to user {owner}, and Weir runs as user {own}"));
    }
    (mode & OTHERS_WRITE != 0).then(|| format!("others may write it (mode {:04o})", mode & 0o7777))
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens and locks the file. `None`: there is none, or it was replaced meanwhile.
fn take(path: &Path) -> Result<Option<File>, VoteFileError> {
    let held = match open_there(path) {
        Ok(held) => held,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) if cause.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(VoteFileError::Untrusted { path: path.to_owned(), why: "it is a symbolic link".into() });
        }
        Err(cause) => return Err(VoteFileError::Open { path: path.to_owned(), cause }),
    };
    let about = held.metadata().map_err(|cause| VoteFileError::Open { path: path.to_owned(), cause })?;
    if let Some(why) = distrust_of_file(&about) {
        return Err(VoteFileError::Untrusted { path: path.to_owned(), why });
    }
    match flock(&held, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(VoteFileError::InUse { path: path.to_owned() }),
        Err(cause) => return Err(VoteFileError::Unlockable { path: path.to_owned(), cause: cause.into() }),
    }
    let is_there = fs::symlink_metadata(path).is_ok_and(|there| is_same(&about, &there));
    Ok(is_there.then_some(held))
}

/// Never waits for a pipe, and follows no link.
fn open_there(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).write(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default()).open(path)
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn read(path: &Path, held: &File, host: HostNumber) -> Result<StoredVote, VoteFileError> {
    let mut bytes = Vec::new();
    let read = held.take(VOTE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|cause| VoteFileError::Open { path: path.to_owned(), cause })?;
    judge(path, &bytes, host)
}

fn judge(path: &Path, bytes: &[u8], host: HostNumber) -> Result<StoredVote, VoteFileError> {
    let vote = StoredVote::parse(bytes).map_err(|cause| VoteFileError::Text { path: path.to_owned(), cause })?;
    let stored = vote.member.host;
    if stored == host { Ok(vote) } else { Err(VoteFileError::OtherHost { path: path.to_owned(), stored, host }) }
}

fn beside(path: &Path, incarnation: u32) -> PathBuf {
    path.with_added_extension(format!("{incarnation:08x}.new"))
}

/// Makes the file of a new member. `None`: another process was first.
fn create(path: &Path, beside: &Path, vote: &StoredVote) -> io::Result<Option<File>> {
    let file = write_beside(beside, &vote.show())?;
    match name_first(beside, path) {
        Ok(()) => Ok(Some(file)),
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Writes and locks a file, synced. After an error none is left.
fn write_beside(beside: &Path, text: &str) -> io::Result<File> {
    match fs::remove_file(beside) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(beside)?;
    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from);
    let written = locked.and_then(|()| file.write_all(text.as_bytes())).and_then(|()| file.sync_all());
    if let Err(cause) = written {
        let _ = fs::remove_file(beside);
        return Err(cause);
    }
    Ok(file)
}

/// Moves a file to a name that nobody has. A rename would replace another one's file.
fn name_first(beside: &Path, path: &Path) -> io::Result<()> {
    let named = fs::hard_link(beside, path);
    let removed = fs::remove_file(beside);
    named.and(removed)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns the kind of a file system that does not outlive the machine.
fn kind_in_memory(folder: &Path) -> Option<&'static str> {
    let number = statfs(folder).ok().and_then(|about| u32::try_from(about.f_type).ok())?;
    IN_MEMORY.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_of_its_owner_or_root_and_not_of_everybody() {
        for (owner, mode, expected) in [
            (7, 0o40700, None),
            (7, 0o40775, None),
            (0, 0o41777, None),
            (0, 0o40755, None),
            (8, 0o40700, Some("belongs to user 8, and Weir runs as user 7")),
            (7, 0o40777, Some("may be written by everybody (mode 0777)")),
            (0, 0o40702, Some("may be written by everybody (mode 0702)")),
        ] {
            assert_eq!(distrust_of_folder(owner, mode, 7).as_deref(), expected, "{owner} {mode:o}");
        }
        for (owner, mode, expected) in [
            (7, 0o100_600, None),
            (0, 0o100_644, None),
            (8, 0o100_600, Some("it belongs to user 8, and Weir runs as user 7")),
            (7, 0o100_660, Some("others may write it (mode 0660)")),
            (7, 0o100_602, Some("others may write it (mode 0602)")),
        ] {
            assert_eq!(distrust_of_owner(owner, mode, 7).as_deref(), expected, "{owner} {mode:o}");
        }
    }
}
