//! The user who speaks PCP on a connection, and the proof of that.

use super::Book;
use crate::control::context::Control;
use crate::monitor::log::Level;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_policy::throttle::Pass;
use weir_session::metrics::Metric;
use weir_wire::pcp::{Code, Fault, Reply, Request, SALT_BYTES, Severity};

/// The prefix of the name under which a user's failed PCP logins are counted, apart from the database user of the same name.
const COUNTED_AS: &str = "pcp/";

/// One connection's visitor.
pub struct Visit {
    book: Arc<Book>,
    /// `None`: over a unix socket.
    peer: Option<IpAddr>,
    standing: Standing,
}

enum Standing {
    Stranger,
    Salted([u8; SALT_BYTES]),
    Known(String),
}

/// The consequence of a request, by the login of its sender.
pub enum Admission {
    /// It is to be done.
    Known,
    /// It was about the login, and is answered.
    Said(Reply),
    /// The connection ends.
    Refused(Fault),
}

impl Visit {
    pub fn new(book: Arc<Book>, peer: Option<IpAddr>) -> Visit {
        Visit { book, peer, standing: Standing::Stranger }
    }

    pub fn is_known(&self) -> bool {
        matches!(self.standing, Standing::Known(_))
    }

    /// For the log.
    pub fn describe(&self) -> String {
        let place = self.peer.map_or("[local]".to_string(), |peer| peer.to_string());
        match &self.standing {
            Standing::Known(user) => format!("user \"{}\" from {place}", user.escape_debug()),
            Standing::Stranger | Standing::Salted(_) => format!("somebody from {place}"),
        }
    }

    /// Lets a request pass, or answers it if it is about the login. Cancel safe.
    pub async fn admit(&mut self, c: &Rc<Control>, request: &Request) -> Admission {
        match (request, &self.standing) {
            (Request::Salt, _) => {
                let salt = crate::random();
                // A user who was known must prove it again.
                self.standing = Standing::Salted(salt);
                Admission::Said(Reply::Salt(salt))
            }
            (Request::Login { user, answer }, Standing::Salted(salt)) => {
                let salt = *salt;
                // A salt is good for one proof.
                self.standing = Standing::Stranger;
                match self.prove(c, user, salt, answer).await {
                    Ok(()) => {
                        self.standing = Standing::Known(String::from_utf8_lossy(user).into_owned());
                        Admission::Said(Reply::of(b'r', Code::LoggedIn, [""; 0]))
                    }
                    Err(fault) => Admission::Refused(fault),
                }
            }
            (Request::Login { .. }, Standing::Stranger | Standing::Known(_)) => {
                Admission::Refused(Fault::new(Severity::Fatal, "authentication failed").detail("no salt was asked for"))
            }
            (_, Standing::Known(_)) => Admission::Known,
            (_, Standing::Stranger | Standing::Salted(_)) => Admission::Refused(
                Fault::new(Severity::Fatal, "authentication failed for new PCP connection").detail("connection not authorized"),
            ),
        }
    }

    /// A user who does not exist and one who has another password are told the same. Cancel safe: the place in the queue is paid for.
    async fn prove(&self, c: &Rc<Control>, user: &[u8], salt: [u8; SALT_BYTES], answer: &[u8]) -> Result<(), Fault> {
        let name = String::from_utf8_lossy(user).into_owned();
        let access = &c.shared.access;
        let burst = c.shared.config.load().auth.failures_max;
        let visitor = access.visitor(self.peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), &format!("{COUNTED_AS}{name}"));
        let pass = access.throttle().ask(visitor, burst, access.age_ms());
        match pass {
            Pass::Now => {}
            Pass::After { wait_ms } => tokio::time::sleep(Duration::from_millis(wait_ms)).await,
            Pass::Refused { wait_ms } => {
                let text = format!("too many failed logins, try again in {} s", wait_ms.div_ceil(1000));
                return Err(Fault::new(Severity::Fatal, text));
            }
        }
        if self.is_right(c, user, salt, answer).await {
            access.throttle().passed(visitor, pass, burst);
            return Ok(());
        }
        access.throttle().failed(visitor, pass, burst, access.age_ms());
        c.count(Metric::PcpLoginsFailed);
        let place = self.peer.map_or("[local]".to_string(), |peer| peer.to_string());
        c.shared
            .log
            .say(Level::Warning, format_args!("PCP: authentication failed for user \"{}\" from {place}", name.escape_debug()));
        let text = format!("authentication failed for user \"{name}\"");
        Err(Fault::new(Severity::Fatal, text).detail("username and/or password does not match"))
    }

    /// Reads the file on another thread, as it is now. Cancel safe.
    async fn is_right(&self, c: &Control, user: &[u8], salt: [u8; SALT_BYTES], answer: &[u8]) -> bool {
        let (user, answer, shared, book) = (user.to_vec(), answer.to_vec(), c.shared.clone(), self.book.clone());
        let judge = move || book.read(&shared.log).verify(&user, salt, &answer);
        tokio::task::spawn_blocking(judge).await.unwrap_or(false)
    }
}
