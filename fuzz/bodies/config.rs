//! The configuration file and the files it includes.
//!
//! Input: files separated by lines that hold only `%%`. The first is read; the others are called `1`, `2` and so on.

use std::path::Path;
use weir_config::visibility::Viewer;
use weir_config::{ConfigReadResult, ProblemSeverity, read, reload, show_all, show_one};

/// Reads the files, and turns the result over in every way that an operator can.
pub fn run(bytes: &[u8]) {
    let files = split_files(bytes);
    let outcome = read_files(&files);
    let texts: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
    let again: Vec<String> = read_files(&files).problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts, again);
    let bad = outcome.problems.iter().any(|problem| problem.severity == ProblemSeverity::Error);
    assert_eq!(outcome.config.is_none(), bad, "{texts:?}");
    let Some(config) = outcome.config else { return };
    for row in show_all(&config, &Viewer::operator()) {
        assert!(show_one(&config, &row.name, &Viewer::operator()).is_ok(), "{}", row.name);
    }
    let (_, waiting) = reload(&config, config.clone());
    assert!(waiting.is_empty(), "a reload of the same file needs no restart: {waiting:?}");
}

fn split_files(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut files = vec![Vec::new()];
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match (line, files.last_mut()) {
            (b"%%\n", _) | (_, None) => files.push(Vec::new()),
            (_, Some(file)) => file.extend_from_slice(line),
        }
    }
    files
}

fn read_files(files: &[Vec<u8>]) -> ConfigReadResult {
    read(Path::new("0"), &mut |path| {
        let number = path.to_str().and_then(|name| name.parse::<usize>().ok());
        number.and_then(|number| files.get(number)).cloned().ok_or_else(|| "no such file".to_owned())
    })
}
