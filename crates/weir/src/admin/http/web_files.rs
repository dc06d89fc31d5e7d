//! Files of the dashboard's pages, which the program carries.

/// A file, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct WebFile {
    pub content_type: &'static str,
    pub bytes: &'static [u8],
}

/// The file of a path, `/` for the page itself.
pub fn file(path: &str) -> Option<WebFile> {
    let page = WebFile { content_type: "text/html; charset=utf-8", bytes: b"<!doctype html><title>Weir</title>\n" };
    matches!(path, "/" | "/index.html").then_some(page)
}
