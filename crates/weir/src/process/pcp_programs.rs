//! Pgpool-II's own PCP programs on this machine. The layout of answers is compiled into them, and a server cannot tell their
//! releases apart; but `--version` does.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_config::{Config, ConfigProblem, ProblemSeverity};
use weir_wire::pcp_protocol::PcpLayout;

/// Paths of Debian's `pgpool2`, and of RPM packages.
const PLACES: [&str; 2] = ["/usr/sbin/pcp_node_info", "/usr/bin/pcp_node_info"];
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const LOOK_PERIOD: Duration = Duration::from_millis(10);

pub fn warning(config: &Config) -> Option<ConfigProblem> {
    PLACES.into_iter().find_map(|place| {
        let text = misread(place, &version(Path::new(place))?, config.pcp.layout)?;
        Some(ConfigProblem::of_parameter(config, ProblemSeverity::Warning, "pcp_protocol_version", &text))
    })
}

/// `None`: absent, or no answer in time.
fn version(program: &Path) -> Option<String> {
    if !program.exists() {
        return None;
    }
    let mut child = Command::new(program);
    child.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().ok()?;
    let asked = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if asked.elapsed() >= ANSWER_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    let output = child.wait_with_output().ok()?;
    Some(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

/// Returns why this program would misread nodes: Pgpool-II 4.4 inserted a value into the middle.
fn misread(place: &str, said: &str, layout: PcpLayout) -> Option<String> {
    let release = said.lines().find_map(|line| line.split_once("(pgpool-II) "))?.1.trim();
    let minor = release.match_indices('.').nth(1).map_or(release, |(at, _)| release.get(..at).unwrap_or(release));
    let word = if release == "4.3.0" { release } else { minor };
    let own = PcpLayout::of_word(word)?;
    let is_read = own == layout || own.min(layout) >= PcpLayout::V4_4;
    (!is_read).then(|| {
        format!("{place} is of Pgpool-II {release} and misreads nodes: set pcp_protocol_version = {word}, if it is used")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_would_misread_a_node_is_named_with_the_line_to_write() {
        for (said, layout, expected) in [
            (
                "pcp_node_info (pgpool-II) 4.3.5\n",
                PcpLayout::V4_7,
                Some("4.3.5 and misreads nodes: set pcp_protocol_version = 4.3,"),
            ),
            (
                "pcp_node_info (pgpool-II) 4.3.0\n",
                PcpLayout::V4_3,
                Some("4.3.0 and misreads nodes: set pcp_protocol_version = 4.3.0,"),
            ),
            (
                "pcp_node_info (pgpool-II) 4.6.1\n",
                PcpLayout::V4_3,
                Some("4.6.1 and misreads nodes: set pcp_protocol_version = 4.6,"),
            ),
            ("pcp_node_info (pgpool-II) 4.3.5\n", PcpLayout::V4_3, None),
            ("pcp_node_info (pgpool-II) 4.6.1\n", PcpLayout::V4_7, None),
            ("pcp_node_info (pgpool-II) 4.4.12\n", PcpLayout::V4_7, None),
            ("pcp_node_info (pgpool-II) 5.0\n", PcpLayout::V4_7, None),
            // Weir's own read all layouts.
            ("pcp_node_info (Weir 0.1.0 17e40da4d) for Pgpool-II 4.7\n", PcpLayout::V4_3, None),
            ("", PcpLayout::V4_3, None),
        ] {
            let text = misread("/usr/sbin/pcp_node_info", said, layout);
            assert_eq!(text.is_some(), expected.is_some(), "{said} {text:?}");
            assert!(text.unwrap_or_default().contains(expected.unwrap_or_default()), "{said}");
        }
    }
}
