//! Questions to etcd's gateway and its answers, as JSON. Pure.
//!
//! Bytes are in base64, 64-bit numbers are texts, and what is empty, 0 or false is left out. Source: etcd's `rpc.proto`, `kv.proto` and
//! `rpctypes/error.go`.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use weir_group::{GroupState, MemberId, StateVersion, VersionNumber};

use super::etcd_fault::EndpointFault;
use super::etcd_http::EtcdAnswer;

/// Bytes of a text of another program that are shown.
const SHOWN_BYTES_MAX: usize = 160;

/// Always linearizable: `serializable` is not said.
pub fn range(key: &str) -> String {
    json!({ "key": BASE64_STANDARD.encode(key) }).to_string()
}

/// Puts a state in the place of revision `expect`, 0 if there is no such key; else the present value is answered.
pub fn compare_and_put(key: &str, expect: u64, new: &StateVersion) -> String {
    let key = BASE64_STANDARD.encode(key);
    let value = BASE64_STANDARD.encode(new.show());
    json!({
        "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": expect.to_string() }],
        "success": [{ "request_put": { "key": key, "value": value } }],
        "failure": [{ "request_range": { "key": key } }],
    })
    .to_string()
}

pub fn login(user: &str, password: &str) -> String {
    json!({ "name": user, "password": password }).to_string()
}

/// The text of a state says no number: the key's revision is the number.
pub fn unnumbered(state: GroupState) -> StateVersion {
    StateVersion { number: VersionNumber::default(), state: Arc::new(state) }
}

pub fn numbered(version: StateVersion, revision: u64) -> StateVersion {
    StateVersion { number: VersionNumber { counter: revision, by: MemberId::default() }, ..version }
}

/// The meaning of an answer for its question.
pub struct EtcdReply {
    pub cluster: u64,
    pub revision: u64,
    body: Value,
}

/// A key's value, not judged yet.
#[derive(Debug, PartialEq, Eq)]
pub struct EtcdValue {
    pub revision: u64,
    pub bytes: Vec<u8>,
}

impl EtcdReply {
    pub fn parse(answer: &EtcdAnswer) -> Result<EtcdReply, EndpointFault> {
        let foreign = || EndpointFault::Foreign(shown(&answer.body));
        let body: Value = serde_json::from_slice(&answer.body).map_err(|_| foreign())?;
        let header = body.get("header").ok_or_else(foreign)?;
        let cluster = number(header.get("cluster_id")).ok_or_else(foreign)?;
        let revision = number(header.get("revision")).unwrap_or_default();
        Ok(EtcdReply { cluster, revision, body })
    }

    /// Value of the key in the answer to `range`.
    pub fn value(&self, key: &str) -> Result<Option<EtcdValue>, EndpointFault> {
        only_value(&self.body, key)
    }

    /// `None`: the state was put, with `revision`. Else the present value, if the key exists.
    pub fn present(&self, key: &str) -> Result<Option<Option<EtcdValue>>, EndpointFault> {
        if self.body.get("succeeded") == Some(&Value::Bool(true)) {
            return if self.revision > 0 { Ok(None) } else { Err(EndpointFault::Foreign("a change without a revision".into())) };
        }
        let range = self.body.pointer("/responses/0/response_range");
        let range = range.ok_or_else(|| EndpointFault::Foreign("a refused change without the present value".into()))?;
        only_value(range, key).map(Some)
    }

    pub fn token(&self) -> Option<&str> {
        self.body.get("token").and_then(Value::as_str)
    }
}

fn only_value(range: &Value, key: &str) -> Result<Option<EtcdValue>, EndpointFault> {
    let Some(found) = range.pointer("/kvs/0") else { return Ok(None) };
    let bytes = |name: &str| found.get(name).map_or(Some(Vec::new()), |text| BASE64_STANDARD.decode(text.as_str()?).ok());
    let revision = number(found.get("mod_revision")).filter(|revision| *revision > 0);
    match (bytes("key"), bytes("value"), revision) {
        (Some(of), Some(bytes), Some(revision)) if of == key.as_bytes() => Ok(Some(EtcdValue { revision, bytes })),
        _ => Err(EndpointFault::Foreign("a value without its key or revision".into())),
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Meaning of a status other than 200.
#[derive(Debug)]
pub enum EtcdRefusal {
    /// The token is too old, or none was sent: log in and ask again. Nothing was done.
    Token(EndpointFault),
    /// Users are not asked for passwords there.
    NoUsers,
    /// Nothing was done.
    Refused(EndpointFault),
    /// A change may have been made.
    Unknown(EndpointFault),
}

impl EtcdRefusal {
    pub fn of(answer: &EtcdAnswer, path: &'static str) -> EtcdRefusal {
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        let said = body.as_ref().and_then(|body| body.get("message").or(body.get("error"))?.as_str());
        let text = shown(said.map_or(&answer.body[..], str::as_bytes));
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let status = answer.status;
        // Also by the words: gateways of different releases have different numbers for one error.
        if status == 401 || says(&["invalid auth token", "user name is empty", "revision of auth store is old"]) {
            return EtcdRefusal::Token(EndpointFault::Login(text));
        }
        if says(&["authentication is not enabled"]) {
            return EtcdRefusal::NoUsers;
        }
        if says(&["authentication failed"]) {
            return EtcdRefusal::Refused(EndpointFault::Login(text));
        }
        match status {
            403 => EtcdRefusal::Refused(EndpointFault::Forbidden(text)),
            404 => EtcdRefusal::Refused(EndpointFault::NoGateway { path }),
            // A request that was given up may have been proposed.
            408 | 499 => EtcdRefusal::Unknown(EndpointFault::Unavailable { status, text }),
            400..=498 => EtcdRefusal::Refused(EndpointFault::Refused { status, text }),
            500.. => EtcdRefusal::Unknown(EndpointFault::Unavailable { status, text }),
            _ => EtcdRefusal::Unknown(EndpointFault::Foreign(format!("status {status}"))),
        }
    }
}

/// Begin of what another program said, fit for a line of the log.
fn shown(bytes: &[u8]) -> String {
    let begin = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
    let text = String::from_utf8_lossy(begin).trim().escape_debug().to_string();
    if text.is_empty() { "an empty answer".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> EtcdAnswer {
        EtcdAnswer { status, body: body.as_bytes().to_vec(), asked_at: 0 }
    }

    fn reply(body: &str) -> EtcdReply {
        EtcdReply::parse(&answer(200, body)).expect("an answer of etcd")
    }

    #[test]
    fn a_value_is_found_with_its_revision() {
        let none = reply(r#"{"header":{"cluster_id":"18","revision":"7"}}"#);
        assert_eq!((none.cluster, none.revision), (18, 7));
        assert_eq!(none.value("k").expect("no value"), None);
        let body = |kvs: &str| format!(r#"{{"header":{{"cluster_id":"1"}},"kvs":[{kvs}]}}"#);
        let found = reply(&body(r#"{"key":"aw==","mod_revision":"5","value":"dmFsdWU="}"#)).value("k");
        assert_eq!(found.expect("a value"), Some(EtcdValue { revision: 5, bytes: b"value".to_vec() }));
        let empty = reply(&body(r#"{"key":"aw==","mod_revision":5}"#)).value("k");
        assert_eq!(empty.expect("an empty value"), Some(EtcdValue { revision: 5, bytes: vec![] }));
        for wrong in [
            r#"{"key":"eA==","mod_revision":"5"}"#,
            r#"{"key":"aw==","mod_revision":"0"}"#,
            r#"{"key":"aw=="}"#,
            r#"{"key":"aw==","mod_revision":"5","value":7}"#,
            r#"{"key":"aw==","mod_revision":"5","value":"?"}"#,
        ] {
            assert!(matches!(reply(&body(wrong)).value("k"), Err(EndpointFault::Foreign(_))), "{wrong}");
        }
    }

    #[test]
    fn a_change_was_made_or_shows_the_present_value() {
        let made = reply(r#"{"header":{"cluster_id":"1","revision":"9"},"succeeded":true,"responses":[{"response_put":{}}]}"#);
        assert_eq!((made.present("k").expect("made"), made.revision), (None, 9));
        let absent = reply(r#"{"header":{"cluster_id":"1","revision":"9"},"responses":[{"response_range":{"header":{}}}]}"#);
        assert_eq!(absent.present("k").expect("refused"), Some(None));
        let broken = reply(r#"{"header":{"cluster_id":"1"},"succeeded":true}"#);
        assert!(broken.present("k").is_err() && reply(r#"{"header":{"cluster_id":"1"}}"#).present("k").is_err());
    }

    #[test]
    fn what_is_not_etcd_is_no_answer() {
        for body in ["", "<html>", "{}", "[]", r#"{"header":{}}"#, r#"{"header":{"cluster_id":"x"}}"#] {
            assert!(matches!(EtcdReply::parse(&answer(200, body)), Err(EndpointFault::Foreign(_))), "{body}");
        }
    }

    #[test]
    fn refusals_tell_whether_something_may_have_been_done() {
        let check = |status: u16, message: &str, expected: &str| {
            let body = format!(r#"{{"error":"etcdserver: {message}","code":1,"message":"etcdserver: {message}"}}"#);
            let said = format!("{:?}", EtcdRefusal::of(&answer(status, &body), "/v3/kv/txn"));
            assert!(said.starts_with(expected), "{status} {message}: {said}");
        };
        check(401, "invalid auth token", "Token(Login");
        check(400, "user name is empty", "Token(Login");
        check(400, "authentication failed, invalid user ID or password", "Refused(Login");
        check(412, "authentication is not enabled", "NoUsers");
        check(403, "permission denied", "Refused(Forbidden");
        check(404, "", "Refused(NoGateway");
        check(400, "request is too large", "Refused(Refused");
        check(503, "no leader", "Unknown(Unavailable");
        check(504, "request timed out", "Unknown(Unavailable");
        check(408, "request canceled", "Unknown(Unavailable");
        check(302, "", "Unknown(Foreign");
    }
}
