//! Files of the dashboard's pages (`crates/weir/web`), which the program carries.

/// A file, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct WebFile {
    pub content_type: &'static str,
    pub bytes: &'static [u8],
}

const PAGE: &str = "/";
const ASSETS: &str = "/assets/";
const INDEX: &str = "index.html";

/// Names and bytes of files. A macro, since only literals name files to include.
macro_rules! included {
    ($($name:literal),* $(,)?) => { &[$(($name, include_bytes!(concat!("../../../web/", $name)))),*] };
}

const FILES: &[(&str, &[u8])] = included![
    "index.html",
    "dashboard.css",
    "weir-icon.svg",
    "act_dialog.js",
    "configuration_page.js",
    "connection_pages.js",
    "curves.js",
    "dashboard.js",
    "data_table.js",
    "failover_page.js",
    "flow_picture.js",
    "formats.js",
    "live_state.js",
    "log_page.js",
    "nodes_page.js",
    "overview_page.js",
    "page_parts.js",
    "rendering.js",
    "server_api.js",
    "statement_pages.js",
    "vendor/htm.js",
    "vendor/preact.js",
    "vendor/preact-hooks.js",
    "vendor/uplot.css",
    "vendor/uplot.js",
];

/// The file of a path, `/` for the page itself.
pub fn file(path: &str) -> Option<WebFile> {
    let wanted = if path == PAGE { INDEX } else { path.strip_prefix(ASSETS)? };
    FILES.iter().find(|(name, _)| *name == wanted).map(|(name, bytes)| WebFile { content_type: content_type(name), bytes })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// As they are sent. A slow line brings the first page within seconds.
    const BYTES_MAX: usize = 250_000;

    fn text(name: &str) -> &'static str {
        FILES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| str::from_utf8(bytes).unwrap()).expect("a file")
    }

    /// Files below a folder that browsers ask for, by their names from there.
    fn below(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                below(&entry.path(), &format!("{name}/"), names);
            } else if content_type(&name) != "application/octet-stream" {
                names.insert(name);
            }
        }
    }

    /// Words between quotes after `before`, in a text.
    fn quoted<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
        text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn all_files_of_the_pages_are_carried() {
        let mut there = BTreeSet::new();
        below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("web"), "", &mut there);
        assert_eq!(FILES.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), there);
        let bytes: usize = FILES.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes, limit is {BYTES_MAX}");
    }

    #[test]
    fn only_paths_of_the_table_lead_to_a_file() {
        assert_eq!(file("/").unwrap().content_type, "text/html; charset=utf-8");
        assert_eq!(file("/assets/vendor/uplot.js").unwrap().content_type, "text/javascript; charset=utf-8");
        for path in
            ["", "/index", "/assets/", "/assets/../web_files.rs", "/assets//dashboard.js", "/dashboard.js", "assets/dashboard.js"]
        {
            assert!(file(path).is_none(), "{path}");
        }
    }

    #[test]
    fn pages_ask_this_proxy_only_and_for_files_that_are_there() {
        for mark in ["src=\"", "href=\""] {
            for path in quoted(text(INDEX), mark) {
                assert!(file(path).is_some(), "{path}");
            }
        }
        for (name, _) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            let folder = if name.starts_with("vendor/") { "vendor/" } else { "" };
            for path in quoted(text(name), "from \"./").into_iter().chain(quoted(text(name), "from\"./")) {
                assert!(file(&format!("{ASSETS}{folder}{path}")).is_some(), "{name} imports {path}");
            }
            let is_ours = !name.starts_with("vendor/");
            let bans = ["innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "https://", "document.write"];
            assert!(!is_ours || bans.iter().all(|ban| !text(name).contains(ban)), "{name}");
        }
    }
}
