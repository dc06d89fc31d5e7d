//! Asks PAM whether a password is a user's, in a process for each question.
//!
//! Modules may block, crash and leak: the damage ends with their process. `judge` is Weir's side and blocks: it runs on threads
//! of `blocking_jobs`. `serve` is the other side, the same program. Source: `CheckPAMAuth` and `pam_passwd_conv_proc` in
//! PostgreSQL's auth.c.

use crate::auth::directory::{PasswordCheck, PasswordVerdict};
use nonstick::items::ItemsMut;
use nonstick::{AuthnFlags, ConversationAdapter, ErrorCode, PamShared, Result as PamResult, Transaction, TransactionBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process_group, setrlimit};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::hba::PamService;
use zeroize::Zeroizing;

pub const COMMAND: &str = "judge-by-pam";

/// Time for an answer when logins have no limit.
const LIMIT: Duration = Duration::from_secs(60);

/// Modules' messages are cut at half of it.
const ANSWER_BYTES_MAX: usize = 4096;

/// A password message has up to 16 kB, a startup packet 10 kB.
const QUESTION_BYTES_MAX: u64 = 64 << 10;

/// Limit on open files: some modules close all possible ones, one by one.
const FILES_MAX: u64 = 1024;

/// The password is a digest under a secret of this process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PamQuestion {
    pub(crate) service: Arc<PamService>,
    pub(crate) user: Box<str>,
    /// Name or number; `None`: unix socket.
    pub(crate) host: Option<Box<str>>,
    pub(crate) password: [u8; 32],
}

/// Asks for a user's password and his right to log in now.
pub fn judge(claim: &PamQuestion, password: &Zeroizing<Vec<u8>>, deadline: Option<Instant>) -> PasswordCheck {
    let deadline = deadline.unwrap_or_else(|| Instant::now() + LIMIT);
    let fields = [claim.service.name.as_bytes(), claim.user.as_bytes(), claim.host.as_deref().unwrap_or("").as_bytes(), password];
    let outcome = match ask(&encode(fields), deadline) {
        Ok(answer) => decode(&answer),
        Err(cause) => PasswordVerdict::Unasked(cause.to_string().into()),
    };
    PasswordCheck { at: Instant::now(), outcome }
}

/// Process of the other side, killed on drop; true once ended.
struct PamProcess(Child, bool);

impl PamProcess {
    /// Returns the exit status, of use if the process ended by itself.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Kills the group: modules may have started processes. The number is valid, as nothing has waited for it.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).filter(|_| !self.1) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.1 = true;
        self.0.wait()
    }
}

impl Drop for PamProcess {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn ask(question: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
    // Not by path, which may hold a newer version by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weir").arg(COMMAND).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut helper = PamProcess(command.spawn()?, false);
    let (Some(mut stdin), Some(mut stdout)) = (helper.0.stdin.take(), helper.0.stdout.take()) else {
        return Err(io::Error::other("the process that asks PAM has no pipes"));
    };
    // The question fits into the pipe.
    stdin.write_all(question)?;
    drop(stdin);
    let mut answer = Vec::new();
    // Not to the end of file: a module's process may hold the pipe open.
    while answer.last() != Some(&b'\n') {
        await_bytes(&stdout, deadline)?;
        let mut part = [0; ANSWER_BYTES_MAX];
        let read = stdout.read(&mut part)?;
        answer.extend_from_slice(&part[..read]);
        if read == 0 || answer.len() > ANSWER_BYTES_MAX {
            drop(stdout);
            // The process may live with its files closed: `end` kills it.
            return Err(io::Error::other(format!("the process that asks PAM has ended: {}", helper.end()?)));
        }
    }
    Ok(answer)
}

fn await_bytes(stdout: &impl std::os::fd::AsFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other("there was no answer within authentication_timeout"));
        }
        let limit = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn encode(fields: [&[u8]; 4]) -> Zeroizing<Vec<u8>> {
    // A growing buffer leaves copies of the password behind.
    let mut out = Zeroizing::new(Vec::with_capacity(fields.iter().map(|field| field.len() + 4).sum()));
    for field in fields {
        out.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(field);
    }
    out
}

fn fields_of(mut question: &[u8]) -> Option<[&[u8]; 4]> {
    let mut fields = [&[] as &[u8]; 4];
    for field in &mut fields {
        let (length, rest) = question.split_first_chunk::<4>()?;
        (*field, question) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    }
    question.is_empty().then_some(fields)
}

fn decode(answer: &[u8]) -> PasswordVerdict {
    let text = String::from_utf8_lossy(answer);
    let (word, cause) = text.trim_end().split_once(' ').unwrap_or((text.trim_end(), ""));
    match word {
        "right" => PasswordVerdict::Right,
        "wrong" => PasswordVerdict::Wrong(cause.into()),
        _ => PasswordVerdict::Unasked("the process that asks PAM answers in no way known".into()),
    }
}

/// Runs the other side: question on stdin, answer on stdout.
pub fn serve() -> io::Result<()> {
    let mut question = Zeroizing::new(Vec::with_capacity(QUESTION_BYTES_MAX as usize));
    io::stdin().lock().take(QUESTION_BYTES_MAX).read_to_end(&mut question)?;
    // Modules' output must not be taken for the answer.
    let mut out = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut files = getrlimit(Resource::Nofile);
    files.current = Some(files.current.unwrap_or(FILES_MAX).min(FILES_MAX));
    setrlimit(Resource::Nofile, files)?;
    let fields = fields_of(&question).ok_or_else(|| io::Error::other("the question cannot be read"))?;
    let said = Rc::default();
    let answer = match consult(fields, &said) {
        Ok(()) => "right\n".to_string(),
        // Any error is a wrong password, as in PostgreSQL: many modules report one as a system error.
        Err((step, code)) => {
            let mut words = format!("{step}: {code}");
            for complaint in said.borrow().iter() {
                words.push_str("; ");
                words.push_str(complaint);
            }
            let clean: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            format!("wrong {}\n", &clean[..clean.floor_char_boundary(ANSWER_BYTES_MAX / 2)])
        }
    };
    out.write_all(answer.as_bytes())
}

type Said = Rc<RefCell<Vec<String>>>;

struct PamConversation {
    password: Zeroizing<Vec<u8>>,
    said: Said,
}

impl ConversationAdapter for PamConversation {
    /// A prompt with echo is not for a password.
    fn prompt(&self, request: impl AsRef<OsStr>) -> PamResult<OsString> {
        self.said.borrow_mut().push(format!("a module asks \"{}\"", request.as_ref().display()));
        Err(ErrorCode::ConversationError)
    }

    fn masked_prompt(&self, _request: impl AsRef<OsStr>) -> PamResult<OsString> {
        Ok(OsString::from_vec(self.password.to_vec()))
    }

    fn error_msg(&self, message: impl AsRef<OsStr>) {
        self.said.borrow_mut().push(message.as_ref().display().to_string());
    }

    fn info_msg(&self, _message: impl AsRef<OsStr>) {}
}

fn consult([service, user, host, password]: [&[u8]; 4], said: &Said) -> Result<(), (&'static str, ErrorCode)> {
    let name = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let answers = PamConversation { password: Zeroizing::new(password.to_vec()), said: said.clone() };
    let builder = TransactionBuilder::new_with_service(name(service)).username(name(user));
    let mut transaction = builder.build(answers.into_conversation()).map_err(|code| ("pam_start", code))?;
    if !host.is_empty() {
        let set = transaction.items_mut().set_remote_host(Some(&name(host)));
        set.map_err(|code| ("pam_set_item", code))?;
    }
    transaction.authenticate(AuthnFlags::empty()).map_err(|code| ("pam_authenticate", code))?;
    transaction.account_management(AuthnFlags::empty()).map_err(|code| ("pam_acct_mgmt", code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_they_were_written() {
        let fields: [&[u8]; 4] = [b"pgpool", b"anna", b"", "pässwörd 密\n".as_bytes()];
        let question = encode(fields);
        assert_eq!(fields_of(&question), Some(fields));
        for end in 0..question.len() {
            assert_eq!(fields_of(&question[..end]), None, "{end}");
        }
        assert_eq!(fields_of(&[&question[..], b"x"].concat()), None);
    }

    #[test]
    fn only_the_right_word_lets_in() {
        assert_eq!(decode(b"right\n"), PasswordVerdict::Right);
        assert_eq!(decode(b"wrong pam_authenticate: no\n"), PasswordVerdict::Wrong("pam_authenticate: no".into()));
        for odd in [&b"\n"[..], b"righteous\n", b"RIGHT\n", b"\xff right\n"] {
            assert!(matches!(decode(odd), PasswordVerdict::Unasked(_)), "{odd:?}");
        }
    }
}
