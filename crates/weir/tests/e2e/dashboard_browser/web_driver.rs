//! A browser without a window, which a test drives by the W3C's WebDriver protocol: Debian's chromium and chromium-driver.
//!
//! One request per connection; a request that finds nothing fails the test, but for [`Browser::run`] and what waits with it.

use crate::support::proxy::Folder;
use crate::support::{leave_out, wait_until};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_demo::{Companion, ReservedPort};

/// Time for one answer of the driver; the start of the browser is the longest.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Control and A pressed, and Control released.
const SELECT_ALL: &str = "\u{E009}a\u{E009}";
/// The key of an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub struct Browser {
    port: ReservedPort,
    session: String,
    // Dropped after the session's end.
    _driver: Companion,
    _folder: Folder,
}

impl Browser {
    /// `None`: this machine lacks a program, and the test is left out.
    pub fn open() -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.exists());
        let (Some(driver), Some(chromium)) = (find("chromedriver"), find("chromium")) else {
            leave_out("there is no chromium or chromedriver (Debian: chromium and chromium-driver)");
            return None;
        };
        let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
        let argument = format!("--port={}", port.number());
        let driver = Companion::start(&driver, &[OsStr::new(&argument)], &folder.0.join("driver.log")).unwrap();
        wait_until("the browser's driver", || TcpStream::connect(("127.0.0.1", port.number())).is_ok());
        let profile = format!("--user-data-dir={}", folder.0.join("profile").display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--window-size=1280,900",
            &profile,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let answer = ask(port.number(), "POST", "/session", Some(&wanted)).unwrap_or_else(|error| panic!("no browser: {error}"));
        let session = answer["sessionId"].as_str().expect("a session").to_owned();
        Some(Browser { port, session, _driver: driver, _folder: folder })
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        ask(self.port.number(), method, &format!("/session/{}{path}", self.session), body.as_ref())
    }

    fn must(&self, path: &str, body: Value) -> Value {
        self.ask("POST", path, Some(body)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn devtools(&self, command: &str, params: Value) -> Value {
        self.must("/goog/cdp/execute", json!({ "cmd": command, "params": params }))
    }

    pub fn go(&self, address: &str) {
        self.must("/url", json!({ "url": address }));
    }

    /// The value of a script, which must `return` it.
    pub fn run(&self, script: &str) -> Value {
        self.must("/execute/sync", json!({ "script": script, "args": [] }))
    }

    /// The texts of all elements that a CSS selector finds, as they are seen.
    pub fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return [...document.querySelectorAll({})].map((found) => found.innerText ?? found.textContent)",
            json!(selector)
        );
        self.run(&script).as_array().expect("texts").iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn wait_text(&self, selector: &str, part: &str) {
        let what = format!("\"{part}\" in {selector}");
        wait_until(&what, || self.texts(selector).iter().any(|text| text.contains(part)));
    }

    pub fn wait_for(&self, selector: &str) {
        wait_until(selector, || !self.texts(selector).is_empty());
    }

    /// As a person does it: the element must be there, and nothing may lie over it.
    pub fn click(&self, selector: &str) {
        let path = format!("/element/{}/click", self.element(selector));
        self.must(&path, json!({}));
    }

    /// Types over what is in a field. The protocol's own command that clears a field makes no event of input: the page would fill the field
    /// again when it is next drawn.
    pub fn enter(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.must(&format!("/element/{element}/value"), json!({ "text": format!("{SELECT_ALL}{text}") }));
    }

    fn element(&self, selector: &str) -> String {
        let mut found = String::new();
        wait_until(selector, || {
            let Ok(answer) = self.ask("POST", "/element", Some(json!({ "using": "css selector", "value": selector }))) else {
                return false;
            };
            found = answer[ELEMENT].as_str().expect("an element").to_owned();
            true
        });
        found
    }

    /// A phone's screen, in CSS pixels.
    pub fn be_phone(&self, width: u32, height: u32) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": true });
        self.devtools("Emulation.setDeviceMetricsOverride", screen);
    }

    pub fn be_wide(&self) {
        self.devtools("Emulation.clearDeviceMetricsOverride", json!({}));
    }

    pub fn prefer(&self, scheme: &str) {
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }));
    }

    /// Writes all of the page, also what is below the screen, to `target/dashboard/<name>.png`. On a machine of continuous
    /// integration (`CI`) nobody looks at them, and each takes a second of both cores.
    pub fn keep_picture(&self, name: &str) {
        if std::env::var_os("CI").is_some() {
            return;
        }
        let shot = self.devtools("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dashboard");
        std::fs::create_dir_all(&folder).unwrap();
        let path: PathBuf = folder.join(format!("{name}.png"));
        std::fs::write(path, from_base64(shot["data"].as_str().expect("a picture"))).unwrap();
    }

    /// Lines of the browser's console since the last look.
    pub fn console(&self) -> Vec<String> {
        let entry = |entry: &Value| {
            format!("{}: {}", entry["level"].as_str().unwrap_or_default(), entry["message"].as_str().unwrap_or_default())
        };
        self.log("browser").iter().map(entry).collect()
    }

    /// Addresses that pages from the network asked for since the last look; the browser's own pages do not count.
    pub fn asked(&self) -> Vec<String> {
        let mut asked = Vec::new();
        for entry in self.log("performance") {
            let entry: Value = serde_json::from_str(entry["message"].as_str().expect("a text")).unwrap();
            let (event, params) = (&entry["message"]["method"], &entry["message"]["params"]);
            let is_of_network = params["documentURL"].as_str().is_some_and(|page| page.starts_with("http"));
            if event == "Network.requestWillBeSent" && is_of_network {
                asked.extend(params["request"]["url"].as_str().map(str::to_owned));
            }
        }
        asked
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        self.must("/se/log", json!({ "type": kind })).as_array().expect("entries").clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.ask("POST", "/execute/sync", Some(json!({ "script": "return document.body.innerText", "args": [] })));
            eprintln!("--- the page:\n{}", text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default());
        }
        // Ends the browser; the driver ends after it.
        let _ = self.ask("DELETE", "", None);
    }
}

/// The value that the driver answers with. Error: its word for what went wrong, and its text.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let told = |error: std::io::Error| format!("the driver does not answer: {error}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(told)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(told)?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes()).map_err(told)?;
    let mut answer = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while answer.read_line(&mut line).map_err(told)? > 2 {
        if let Some((name, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            length = value.trim().parse().map_err(|_| format!("{name} is no number"))?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body).map_err(told)?;
    let value = serde_json::from_slice::<Value>(&body).map_err(|error| format!("no JSON: {error}"))?["value"].take();
    match value["error"].as_str() {
        Some(error) => Err(format!("{error}: {}", value["message"])),
        None => Ok(value),
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}
