//! The vote's file and its store, on real disks: what a crash, a full disk, others and a second process leave.

use crate::watchdog::state_store::{OpenedState, StateOutcome, StateStore, StateWriteRefusal};
use crate::watchdog::vote_file::{FormerMark, VoteFile, VoteFileError, VoteNotice};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use weir_group::{
    GroupLead, GroupMembers, GroupState, GroupWrites, HalfVotes, MemberDuty, MemberId, MemberRow, StateVersion, StoredVote,
    VOTE_BYTES_MAX, VersionNumber,
};

const PORT: u16 = 9999;
const HOST: u8 = 1;
const DICE: u32 = 0xAB;
const LIMIT: Duration = Duration::from_secs(60);
/// Names the folder for a child, which is this test program.
const CHILD: &str = "WEIR_TEST_VOTE_FOLDER";

struct VoteFolder(PathBuf, FolderFate);

#[derive(Clone, Copy, PartialEq, Eq)]
enum FolderFate {
    Removed,
    /// A parent process removes it.
    Kept,
}

impl VoteFolder {
    fn new(name: &str) -> VoteFolder {
        let folder = std::env::temp_dir().join(format!("weir-vote-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        VoteFolder(folder, FolderFate::Removed)
    }

    fn path(&self) -> PathBuf {
        self.0.join(format!("weir_group.{PORT}"))
    }

    fn beside(&self) -> PathBuf {
        self.0.join(format!("weir_group.{PORT}.{DICE:08x}.new"))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn put(&self, bytes: &[u8]) {
        let _ = fs::remove_file(self.path());
        fs::write(self.path(), bytes).unwrap();
        fs::set_permissions(self.path(), Permissions::from_mode(0o600)).unwrap();
    }

    fn open(&self) -> Result<(VoteFile, StoredVote, Vec<VoteNotice>), VoteFileError> {
        VoteFile::open(&self.0, PORT, HOST, DICE)
    }

    fn opened(&self) -> (VoteFile, StoredVote) {
        let (file, vote, _) = self.open().unwrap();
        (file, vote)
    }

    fn error(&self) -> String {
        self.open().err().map(|error| error.to_string()).unwrap_or_default()
    }
}

impl Drop for VoteFolder {
    fn drop(&mut self) {
        if self.1 == FolderFate::Removed {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A vote with a state of some 40 kB, so that a write takes several pages.
fn vote(counter: u64) -> StoredVote {
    let member = MemberId { host: HOST, incarnation: DICE };
    let number = VersionNumber { counter, by: member };
    let row = MemberRow { id: member, priority: 1, duty: MemberDuty::Serves };
    let state = GroupState {
        group: member,
        change: counter,
        members: GroupMembers::of(vec![row], HalfVotes::TooFew),
        lost: [].into(),
        lead: GroupLead::Held(member),
        term: counter,
        writes: GroupWrites::Open { epoch: counter, node: 0 },
        lease_ms: 2_000,
        failover: format!("{counter:016} ").repeat(2_000),
        decisions: Vec::new(),
        former: Vec::new(),
    };
    let accepted = Some(StateVersion { number, state: Arc::new(state) });
    StoredVote { group: Some(member), promised: number, accepted, ..StoredVote::new(member) }
}

fn leave_out(why: &str) {
    let this = std::thread::current();
    let line = format!("left out: {}: {why}\n", this.name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// This program, to run the test of this thread only, which finds `CHILD`.
fn child(program: &Path, folder: &Path) -> Vec<String> {
    let name = std::thread::current().name().unwrap().to_owned();
    let words = [program.to_str().unwrap(), "--exact", &name, "--nocapture"];
    let environment = format!("{CHILD}={}", folder.display());
    [environment.as_str()].into_iter().chain(words).map(str::to_owned).collect()
}

fn folder_of_parent() -> Option<VoteFolder> {
    std::env::var_os(CHILD).map(|folder| VoteFolder(folder.into(), FolderFate::Kept))
}

#[test]
fn a_new_member_is_on_disk_before_it_is_used() {
    let folder = VoteFolder::new("new");
    let (file, vote, notices) = folder.open().unwrap();
    assert_eq!(vote, StoredVote::new(MemberId { host: HOST, incarnation: DICE }));
    assert_eq!(StoredVote::parse(&fs::read(folder.path()).unwrap()).as_ref(), Ok(&vote));
    assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o7777, 0o600);
    assert!(notices.contains(&VoteNotice::NewMember { path: folder.path() }), "{notices:?}");
    assert_eq!(folder.names(), ["weir_group.9999"]);
    drop(file);
    let (file, known, notices) = VoteFile::open(&folder.0, PORT, HOST, DICE + 1).unwrap();
    assert_eq!(known, vote, "the dice are for a new member only");
    assert!(!notices.iter().any(|notice| matches!(notice, VoteNotice::NewMember { .. })), "{notices:?}");
    drop(file);
    let (_other, at_port, _) = VoteFile::open(&folder.0, PORT + 1, HOST, 5).unwrap();
    assert_eq!(at_port.member.incarnation, 5, "each port has its file");
}

#[test]
fn a_vote_is_replaced_whole_and_read_again() {
    let folder = VoteFolder::new("replace");
    let (mut file, _) = folder.opened();
    for counter in 1..=3 {
        file.replace(&vote(counter).show()).unwrap();
        assert_eq!(StoredVote::parse(&fs::read(folder.path()).unwrap()), Ok(vote(counter)));
        assert_eq!(folder.names(), ["weir_group.9999"]);
        assert!(matches!(folder.open(), Err(VoteFileError::InUse { .. })), "each file is locked under its name");
    }
    drop(file);
    assert_eq!(folder.opened().1, vote(3));
    assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn a_vote_torn_at_any_byte_is_an_error_and_stays_as_it_is() {
    let folder = VoteFolder::new("torn");
    let whole = StoredVote::new(MemberId { host: HOST, incarnation: DICE }).show().into_bytes();
    for at in 0..whole.len() {
        folder.put(&whole[..at]);
        let error = folder.error();
        assert!(
            error.contains("weir_group.9999 cannot be used: ") && error.contains("delete it: this host is then a new"),
            "{error}"
        );
        assert_eq!(fs::read(folder.path()).unwrap(), &whole[..at]);
    }
    folder.put(&whole);
    assert!(folder.open().is_ok());
    fs::remove_file(folder.path()).unwrap();
    assert!(folder.open().is_ok(), "the way out");
}

#[test]
fn a_file_that_is_not_the_vote_of_this_host_is_an_error_with_a_way_out() {
    let folder = VoteFolder::new("foreign");
    let check = |expected: &str| {
        let error = folder.error();
        assert!(error.contains(expected) && error.contains("delete it: this host is then a new member"), "{error}");
    };
    folder.put(b"weir failover state 1\n");
    check("begins with another form");
    folder.put(b"\xFF\xFE");
    check("torn or damaged");
    folder.put(&vec![b'x'; VOTE_BYTES_MAX + 1]);
    check("bytes, limit is");
    folder.put(StoredVote::new(MemberId { host: 7, incarnation: 1 }).show().as_bytes());
    check("is the vote of host 7, and this is host 1 by pgpool_node_id; correct that");
    folder.put(vote(1).show().as_bytes());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o666)).unwrap();
    check("others may write it (mode 0666)");
    fs::rename(folder.path(), folder.0.join("precious")).unwrap();
    symlink(folder.0.join("precious"), folder.path()).unwrap();
    check("it is a symbolic link");
    fs::remove_file(folder.path()).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, folder.path(), pipe, 0o600.into(), 0).unwrap();
    check("it is no regular file");
    fs::remove_file(folder.path()).unwrap();
    fs::create_dir(folder.path()).unwrap();
    assert!(folder.error().contains("cannot be read: Is a directory"), "{}", folder.error());
    assert!(folder.0.join("precious").exists());
}

#[test]
fn a_folder_that_others_may_change_is_refused() {
    let folder = VoteFolder::new("shared");
    let mode = |mode: u32| fs::set_permissions(&folder.0, Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    assert!(folder.error().contains("may be written by everybody (mode 0777)"), "{}", folder.error());
    mode(0o1777);
    assert!(folder.open().is_ok(), "as /tmp");
    let missing = VoteFile::open(&folder.0.join("missing"), PORT, HOST, DICE).map(drop).unwrap_err().to_string();
    assert!(missing.contains("No such file") && missing.contains("wd_state_dir must be a folder"), "{missing}");
    let file = VoteFile::open(&folder.path(), PORT, HOST, DICE).map(drop).unwrap_err().to_string();
    assert!(file.contains("not a directory"), "{file}");
}

#[test]
fn two_processes_never_vote_as_one_member() {
    let folder = VoteFolder::new("two");
    let outcomes: Vec<Result<StoredVote, String>> = std::thread::scope(|scope| {
        let open = |dice| {
            let folder = &folder;
            scope.spawn(move || (VoteFile::open(&folder.0, PORT, HOST, dice), dice))
        };
        let threads: Vec<_> = (0..8).map(open).collect();
        // All files are held until all have tried.
        let opened: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap().0).collect();
        opened.iter().map(|opened| opened.as_ref().map(|(_, vote, _)| vote.clone()).map_err(ToString::to_string)).collect()
    });
    let votes: Vec<&StoredVote> = outcomes.iter().flatten().collect();
    assert_eq!(votes.len(), 1, "{outcomes:?}");
    for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(error.contains("weir_group.9999 belongs to another Weir that runs; stop it, or give each a port"), "{error}");
    }
    assert_eq!(&folder.opened().1, votes[0], "the file is that of the one that got it");
    assert_eq!(folder.names(), ["weir_group.9999"]);
}

#[test]
fn a_former_process_is_seen_as_long_as_one_of_them_runs() {
    let folder = VoteFolder::new("former");
    assert!(!FormerMark::is_set(&folder.path()), "no process was taken over from");
    let (first, second) = (FormerMark::set(&folder.path()).unwrap(), FormerMark::set(&folder.path()).unwrap());
    drop(first);
    assert!(FormerMark::is_set(&folder.path()), "another one is there");
    drop(second);
    assert!(!FormerMark::is_set(&folder.path()) && !FormerMark::is_set(&folder.path()), "none is left");
}

#[test]
fn a_mark_that_others_left_is_not_used() {
    let folder = VoteFolder::new("mark");
    let mark = folder.0.join("weir_group.9999.former");
    symlink(folder.path(), &mark).unwrap();
    assert!(FormerMark::set(&folder.path()).is_err() && FormerMark::is_set(&folder.path()));
    fs::remove_file(&mark).unwrap();
    fs::write(&mark, "").unwrap();
    fs::set_permissions(&mark, Permissions::from_mode(0o666)).unwrap();
    assert!(FormerMark::set(&folder.path()).is_err());
}

#[test]
fn what_a_crash_leaves_beside_the_file_changes_nothing() {
    let folder = VoteFolder::new("left");
    // Written beside, and not yet named.
    fs::write(folder.beside(), "half of a vo").unwrap();
    let (mut file, new) = folder.opened();
    assert_eq!(
        (new, folder.names()),
        (StoredVote::new(MemberId { host: HOST, incarnation: DICE }), vec!["weir_group.9999".into()])
    );
    file.replace(&vote(1).show()).unwrap();
    drop(file);
    // The next version is whole, and not yet renamed.
    fs::write(folder.beside(), vote(2).show()).unwrap();
    let (file, kept) = folder.opened();
    assert_eq!((kept, folder.names()), (vote(1), vec!["weir_group.9999".into()]));
    drop(file);
    // A new file has both names.
    fs::hard_link(folder.path(), folder.beside()).unwrap();
    let (mut file, kept) = folder.opened();
    assert_eq!(kept, vote(1));
    fs::hard_link(folder.path(), folder.beside()).unwrap();
    file.replace(&vote(3).show()).unwrap();
    drop(file);
    assert_eq!((folder.opened().1, folder.names()), (vote(3), vec!["weir_group.9999".into()]));
}

#[test]
fn a_file_deleted_in_use_comes_back_unless_another_member_took_the_name() {
    let folder = VoteFolder::new("deleted");
    let (mut file, _) = folder.opened();
    fs::remove_file(folder.path()).unwrap();
    file.replace(&vote(1).show()).unwrap();
    assert_eq!(StoredVote::parse(&fs::read(folder.path()).unwrap()), Ok(vote(1)));
    assert!(matches!(folder.open(), Err(VoteFileError::InUse { .. })));
    fs::remove_file(folder.path()).unwrap();
    let (_other, other, _) = VoteFile::open(&folder.0, PORT, HOST, DICE + 1).unwrap();
    let error = file.replace(&vote(2).show()).unwrap_err();
    assert!(error.to_string().contains("somebody else replaced it"), "{error}");
    assert_eq!(StoredVote::parse(&fs::read(folder.path()).unwrap()), Ok(other));
}

async fn outcome_of(opened: &mut OpenedState) -> StateOutcome {
    tokio::time::timeout(LIMIT, opened.outcomes.recv()).await.expect("within the limit").expect("the thread runs")
}

#[tokio::test]
async fn a_write_is_answered_by_its_number_and_a_closed_store_is_another_ones() {
    let folder = VoteFolder::new("store");
    let mut opened = StateStore::open(&folder.0, PORT, HOST, DICE).unwrap();
    for number in 1..=20 {
        opened.store.write(number, vote(number).show()).unwrap();
        let outcome = outcome_of(&mut opened).await;
        assert!(matches!(outcome, StateOutcome::Written { number: known } if known == number), "{outcome:?}");
    }
    let refused = StateStore::open(&folder.0, PORT, HOST, DICE).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("belongs to another Weir that runs"), "{refused}");
    opened.store.write(21, vote(21).show()).unwrap();
    opened.store.close(LIMIT).await.unwrap();
    let next = StateStore::open(&folder.0, PORT, HOST, DICE).unwrap();
    assert_eq!(next.vote, vote(21), "the write under way ended first");
    assert!(matches!(opened.outcomes.recv().await, Some(StateOutcome::Written { number: 21 })));
    assert!(opened.outcomes.recv().await.is_none(), "and then there is no other");
}

#[tokio::test]
async fn after_a_write_that_failed_there_is_none_and_the_disk_has_the_one_before() {
    let folder = VoteFolder::new("failed");
    let mut opened = StateStore::open(&folder.0, PORT, HOST, DICE).unwrap();
    opened.store.write(1, vote(1).show()).unwrap();
    assert!(matches!(outcome_of(&mut opened).await, StateOutcome::Written { number: 1 }));
    // Not even root writes a file where a folder is.
    fs::create_dir_all(folder.beside().join("taken")).unwrap();
    opened.store.write(2, vote(2).show()).unwrap();
    let StateOutcome::Failed { number: 2, error } = outcome_of(&mut opened).await else { panic!("it cannot be written") };
    let error = error.to_string();
    assert!(error.contains("weir_group.9999 cannot be written: Is a directory"), "{error}");
    assert!(error.contains("this host has no vote until Weir is started again"), "{error}");
    fs::remove_dir_all(folder.beside()).unwrap();
    assert_eq!(opened.store.write(3, vote(3).show()), Err(StateWriteRefusal::AfterError));
    opened.store.close(LIMIT).await.unwrap();
    assert_eq!(folder.opened().1, vote(1));
}

/// Writes votes with rising numbers, and prints each once it is written, until it is killed.
fn write_for_ever(folder: &VoteFolder) -> ! {
    let mut opened = StateStore::open(&folder.0, PORT, HOST, DICE).unwrap();
    let first = opened.vote.promised.counter + 1;
    for number in first.. {
        opened.store.write(number, vote(number).show()).unwrap();
        let Some(StateOutcome::Written { .. }) = opened.outcomes.blocking_recv() else { panic!("it can be written") };
        std::io::stdout().write_all(format!("written {number}\n").as_bytes()).unwrap();
    }
    unreachable!("nobody counts that far")
}

#[test]
fn a_process_killed_while_it_writes_leaves_a_whole_vote_and_no_lock() {
    if let Some(folder) = folder_of_parent() {
        write_for_ever(&folder);
    }
    const ROUNDS: u64 = 12;
    let folder = VoteFolder::new("killed");
    let mut known = 0;
    for round in 0..ROUNDS {
        let words = child(&std::env::current_exe().unwrap(), &folder.0);
        let mut running = Command::new("env").args(&words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(running.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut written = lines.filter_map(|line| line.split_once("written ").map(|(_, number)| number.parse::<u64>().unwrap()));
        // The child goes on meanwhile, to another place of a write in each round.
        let last = written.by_ref().inspect(|number| assert!(*number > known)).nth(usize::try_from(round % 4).unwrap());
        running.kill().unwrap();
        running.wait().unwrap();
        let (file, kept) = folder.opened();
        assert_eq!(kept, vote(kept.promised.counter), "round {round}");
        assert!(kept.promised.counter >= last.unwrap(), "round {round}: {last:?} was told to be on disk");
        assert_eq!(folder.names(), ["weir_group.9999"], "round {round}");
        known = kept.promised.counter;
        drop(file);
    }
}

/// In a mount namespace of its own.
fn fill_the_disk(folder: &VoteFolder) {
    let (mut file, _, notices) = folder.open().unwrap();
    let small = notices.iter().any(|notice| matches!(notice, VoteNotice::InMemory { kind: "tmpfs", .. }));
    assert!(small, "{notices:?}");
    assert!(notices[1].to_string().contains("a restart of the machine loses this host's vote"), "{notices:?}");
    file.replace(&vote(1).show()).unwrap();
    let rest = folder.0.join("rest");
    let full = fs::write(&rest, vec![0; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let error = file.replace(&vote(2).show()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop(file);
    assert_eq!((folder.opened().1, folder.names()), (vote(1), vec!["rest".into(), "weir_group.9999".into()]));
}

#[test]
fn a_full_disk_leaves_the_vote_before() {
    if let Some(folder) = folder_of_parent() {
        return fill_the_disk(&folder);
    }
    let folder = VoteFolder::new("full");
    let mount = format!("mount -t tmpfs -o size=128k,mode=0700 none {} || exit 77; exec env \"$@\"", folder.0.display());
    let words = child(&std::env::current_exe().unwrap(), &folder.0);
    let output = Command::new("unshare").args(["-m", "sh", "-c", &mount, "sh"]).args(words).output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(77) || String::from_utf8_lossy(&output.stderr).starts_with("unshare:") => {
            leave_out("no file system can be mounted here, which takes root");
        }
        Ok(output) => panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        Err(cause) => leave_out(&format!("unshare cannot be run: {cause}")),
    }
}

/// As a user who is not root.
fn open_as_ordinary_user(folder: &VoteFolder) {
    let own = VoteFolder(folder.0.join("own"), FolderFate::Kept);
    let (mut file, _) = own.opened();
    file.replace(&vote(1).show()).unwrap();
    drop(file);
    assert_eq!(own.opened().1, vote(1));
    assert!(folder.error().contains("cannot be written: Permission denied"), "a folder of root: {}", folder.error());
    let theirs = VoteFolder(folder.0.join("theirs"), FolderFate::Kept);
    assert!(theirs.error().contains("theirs belongs to user 65533, and Weir runs as user 65534"), "{}", theirs.error());
    let shared = VoteFolder(folder.0.join("shared"), FolderFate::Kept);
    assert!(shared.error().contains("weir_group.9999 cannot be read: Permission denied"), "{}", shared.error());
    fs::set_permissions(&own.0, Permissions::from_mode(0o500)).unwrap();
    let (mut file, _) = own.opened();
    assert_eq!(file.replace(&vote(2).show()).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    drop(file);
    assert_eq!(own.opened().1, vote(1));
}

#[test]
fn an_ordinary_user_needs_a_folder_of_its_own() {
    if let Some(folder) = folder_of_parent() {
        return open_as_ordinary_user(&folder);
    }
    if !rustix::process::geteuid().is_root() {
        return leave_out("only root can become another user");
    }
    let folder = VoteFolder::new("user");
    fs::set_permissions(&folder.0, Permissions::from_mode(0o755)).unwrap();
    for (name, owner, mode) in [("own", 65_534, 0o700), ("theirs", 65_533, 0o777), ("shared", 0, 0o1777)] {
        fs::create_dir(folder.0.join(name)).unwrap();
        std::os::unix::fs::chown(folder.0.join(name), Some(owner), None).unwrap();
        fs::set_permissions(folder.0.join(name), Permissions::from_mode(mode)).unwrap();
    }
    // Root's own file, which nobody else may read.
    fs::write(folder.0.join("shared/weir_group.9999"), "").unwrap();
    fs::set_permissions(folder.0.join("shared/weir_group.9999"), Permissions::from_mode(0o600)).unwrap();
    // The other user may not reach the folder in which this program lies.
    let program = folder.0.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let words = child(&program, &folder.0);
    match Command::new("setpriv").args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "env"]).args(words).output() {
        Ok(output) => {
            let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        Err(cause) => leave_out(&format!("setpriv cannot be run: {cause}")),
    }
}
