//! The context of an image: a folder with a Containerfile and all that it copies.

use std::fs;

use anyhow::{Context, Result};

use super::Release;
use super::release_build::BuiltRelease;

/// Files of `packaging/container`, beside the program.
const FILES: [&str; 5] = ["Containerfile", ".containerignore", "pgpool.conf", "passwd", "group"];

const PROGRAM: &str = "weir";

pub fn write(release: &Release, built: &BuiltRelease) -> Result<()> {
    let folder = release.folder.join("image");
    fs::create_dir_all(&folder)?;
    for name in FILES {
        let from = release.root.join("packaging/container").join(name);
        fs::copy(&from, folder.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    fs::copy(&built.program, folder.join(PROGRAM))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> String {
        fs::read_to_string(crate::root().join("packaging/container").join(name)).unwrap()
    }

    #[test]
    fn all_that_the_containerfile_copies_is_in_the_context() {
        let text = read("Containerfile");
        let lines = text.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--from"));
        let mut count = 0;
        for line in lines {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            words.pop();
            for word in words {
                assert!(word == PROGRAM || FILES.contains(&word), "{word} is not in the context");
                assert!(read(".containerignore").lines().any(|kept| kept == format!("!{word}")), "{word} is ignored");
                count += 1;
            }
        }
        assert_eq!(count, 4);
    }

    #[test]
    fn the_image_runs_as_the_user_of_its_own_files_and_not_as_root() {
        let (container, passwd) = (read("Containerfile"), read("passwd"));
        let user = container.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
        assert!(user != "0:0" && passwd.contains(&format!("weir:x:{user}:")), "{user}");
        assert!(container.contains("\nSTOPSIGNAL SIGINT\n") && container.contains("\nHEALTHCHECK "));
    }
}
