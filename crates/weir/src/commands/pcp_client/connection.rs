//! Connection to a PCP server. Errors are in Pgpool-II's form.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use weir_wire::gather::{GatherBound, GatherBudget};
use weir_wire::pcp_protocol::{
    PcpPacket, PcpReply, PcpReplyCode, PcpReport, PcpRequest, PcpSeverity, REPLY_LENGTH_MAX, proof, read,
};

/// Source: Pgpool-II, `UNIX_DOMAIN_PATH`.
const SOCKET_FOLDER: &str = "/tmp";
/// Name of that socket's host in `.pcppass`.
const LOCAL_HOST: &str = "localhost";
const ANSWER: GatherBound = GatherBound { thing: "the answer", count_max: 1 << 20, bytes_max: 64 << 20, parameter: "" };

pub struct PcpAddress {
    host: String,
    pub(super) port: u16,
}

impl PcpAddress {
    pub fn new(host: Option<&str>, port: u16) -> PcpAddress {
        PcpAddress { host: host.filter(|host| !host.is_empty()).unwrap_or(SOCKET_FOLDER).to_string(), port }
    }

    fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Names in `.pcppass`.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![self.host.clone()];
        names.extend(self.is_socket().then(|| LOCAL_HOST.to_string()));
        names
    }
}

trait BlockingStream: Read + Write {}

impl<S: Read + Write> BlockingStream for S {}

pub struct PcpClientConn {
    stream: Box<dyn BlockingStream>,
    inbox: Vec<u8>,
    is_debugged: bool,
}

impl PcpClientConn {
    pub fn open(target: &PcpAddress, is_debugged: bool) -> Result<PcpClientConn, String> {
        let stream: Box<dyn BlockingStream> = if target.is_socket() {
            let path = Path::new(&target.host).join(format!(".s.PGSQL.{}", target.port));
            let failed = |cause| format!("ERROR: connection to socket \"{}\" failed with error \"{cause}\"", path.display());
            Box::new(UnixStream::connect(&path).map_err(failed)?)
        } else {
            let failed = |cause| format!("ERROR: connection to host \"{}\" failed with error \"{cause}\"", target.host);
            Box::new(TcpStream::connect((target.host.as_str(), target.port)).map_err(failed)?)
        };
        Ok(PcpClientConn { stream, inbox: Vec::new(), is_debugged })
    }

    pub fn log_in(&mut self, user: &str, password: &[u8]) -> Result<(), String> {
        self.send(&PcpRequest::Salt)?;
        let salt = match self.receive()? {
            (PcpReply::Salt(salt), _) => salt,
            (other, _) => return Err(unexpected(&other)),
        };
        let answer = proof(password, user.as_bytes(), salt);
        self.send(&PcpRequest::Login { user: user.as_bytes().to_vec(), answer: answer.to_vec() })?;
        match self.receive()? {
            (PcpReply::Words { code: PcpReplyCode::LoggedIn, .. }, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Returns all packets of the answer. Notices go to stderr.
    pub fn ask(&mut self, request: &PcpRequest) -> Result<Vec<PcpReply>, String> {
        self.say(request);
        self.send(request)?;
        let (mut replies, mut budget) = (Vec::new(), GatherBudget::new(ANSWER));
        loop {
            let (reply, bytes) = self.receive()?;
            budget.take(bytes).map_err(|exceeded| format!("ERROR: {exceeded}"))?;
            let is_last = matches!(&reply, PcpReply::Words { code: PcpReplyCode::Done, tag, .. } if *tag == request.reply_tag());
            replies.push(reply);
            if is_last {
                return Ok(replies);
            }
        }
    }

    pub fn end(mut self) {
        self.say(&PcpRequest::End);
        let _ = self.send(&PcpRequest::End);
    }

    fn say(&self, request: &PcpRequest) {
        if self.is_debugged {
            let mut out = Vec::new();
            request.write(&mut out);
            debug("send", out[0], out.len() - 1);
        }
    }

    fn send(&mut self, request: &PcpRequest) -> Result<(), String> {
        let mut out = Vec::new();
        request.write(&mut out);
        self.stream.write_all(&out).map_err(|cause| format!("ERROR: cannot send to the server: {cause}"))
    }

    /// Returns the next packet and its size. Prints notices; an error packet is an error.
    fn receive(&mut self) -> Result<(PcpReply, usize), String> {
        loop {
            let packet = read(&self.inbox, REPLY_LENGTH_MAX).map_err(|error| format!("ERROR: {error}"))?;
            if let Some(PcpPacket { tag, body, used }) = packet {
                let reply = PcpReply::read(tag, body).map_err(|error| format!("ERROR: {error}"))?;
                if self.is_debugged {
                    debug("recv", tag, used - 1);
                }
                self.inbox.drain(..used);
                match reply {
                    PcpReply::Error(fault) => return Err(shown(&fault)),
                    // Warnings are about Pgpool-II's own trouble; its clients do not show them.
                    PcpReply::Notice(fault) if fault.severity == PcpSeverity::Notice.word() => {
                        let _ = writeln!(std::io::stderr(), "{}", shown(&fault).trim_end());
                    }
                    PcpReply::Notice(_) => {}
                    PcpReply::Salt(_) | PcpReply::Words { .. } => return Ok((reply, used)),
                }
                continue;
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err("ERROR: the server closed the connection".into()),
                Ok(bytes) => self.inbox.extend_from_slice(&piece[..bytes]),
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(format!("ERROR: cannot read from the server: {cause}")),
            }
        }
    }
}

fn debug(way: &str, tag: u8, length: usize) {
    let _ = writeln!(std::io::stdout(), "DEBUG: {way}: tos=\"{}\", len={length}", tag.escape_ascii());
}

/// Ends with an empty line, as in Pgpool-II's clients.
fn shown(fault: &PcpReport) -> String {
    let detail = if fault.detail.is_empty() { String::new() } else { format!("DETAIL:  {}\n", fault.detail) };
    format!("{}:  {}\n{detail}", fault.severity, fault.message)
}

fn unexpected(reply: &PcpReply) -> String {
    format!("ERROR: the server speaks another protocol than PCP: {reply:?}")
}
