//! Reads the kept results, for figures and tables.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::metric::{METRICS, Metric};
use super::result_file::{FILES, ResultFile};
use super::stats::{Spread, spread};
use super::system::System;

/// Where results are kept, from the workspace's folder.
pub const FOLDER: &str = "bench/results";

/// One workload on one system, by their names.
pub type Place<'a> = (&'a str, System);

/// All kept files.
pub struct Archive {
    documents: Vec<(ResultFile, Value)>,
}

impl Archive {
    /// Reads the files below the workspace's folder.
    pub fn read(root: &Path) -> Result<Self> {
        let read = |file: ResultFile| -> Result<(ResultFile, Value)> {
            let path = root.join(FOLDER).join(file.name());
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((file, serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?))
        };
        Ok(Self { documents: FILES.into_iter().map(read).collect::<Result<_>>()? })
    }

    /// From documents in memory.
    #[cfg(test)]
    pub fn of(documents: Vec<(ResultFile, Value)>) -> Self {
        Self { documents }
    }

    /// A fact about how a file was measured; "unknown" if it has none.
    pub fn fact(&self, file: ResultFile, name: &str) -> &str {
        let document = self.documents.iter().find(|(of, _)| *of == file).map(|(_, document)| document);
        document.and_then(|document| document["about"][name].as_str()).unwrap_or("unknown")
    }

    /// The values of all rounds; none if it was not measured.
    pub fn values(&self, place: Place, metric: Metric) -> Vec<f64> {
        let key = METRICS.iter().find(|row| row.metric == metric).map_or("", |row| row.key);
        let entries = self.documents.iter().flat_map(|(_, document)| document["results"].as_array().into_iter().flatten());
        let mut of_place = entries.filter(|entry| entry["workload"] == place.0 && entry["system"] == place.1.name());
        let values = of_place.next().map(|entry| &entry["metrics"][key]["values"]);
        values.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// The median over the rounds.
    pub fn median(&self, place: Place, metric: Metric) -> Option<f64> {
        spread(&self.values(place, metric)).map(|spread| spread.median)
    }

    /// The median of the ratios within a round; of the medians, if rounds are missing on one side.
    pub fn ratio(&self, above: Place, below: Place, metric: Metric) -> Option<f64> {
        let (above, below) = (self.values(above, metric), self.values(below, metric));
        if above.len() == below.len() {
            let ratios: Vec<f64> = above.iter().zip(&below).filter(|(_, below)| **below > 0.0).map(|(a, b)| a / b).collect();
            return spread(&ratios).map(|Spread { median, .. }| median);
        }
        let (above, below) = (spread(&above)?.median, spread(&below)?.median);
        (below > 0.0).then(|| above / below)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn archive(ours: &[f64], theirs: &[f64]) -> Archive {
        let entry = |system: &str, values: &[f64]| json!({"workload": "w", "system": system, "metrics": {"per_second": {"values": values}}});
        let document = json!({"about": {"date": "today"}, "results": [entry("weir", ours), entry("pgbouncer", theirs)]});
        Archive::of(vec![(ResultFile::Table, document)])
    }

    #[test]
    fn ratios_are_taken_within_a_round_where_all_rounds_are_there() {
        let (ours, theirs) = (("w", System::Weir), ("w", System::Bouncer));
        let whole = archive(&[10.0, 300.0, 40.0], &[5.0, 100.0, 10.0]);
        assert_eq!(whole.ratio(ours, theirs, Metric::Tps), Some(3.0));
        let one_lacks = archive(&[10.0, 300.0, 40.0], &[5.0, 15.0]);
        assert_eq!(one_lacks.ratio(ours, theirs, Metric::Tps), Some(4.0));
        assert_eq!(whole.ratio(ours, ("w", System::Pgpool), Metric::Tps), None);
        assert_eq!(whole.fact(ResultFile::Table, "date"), "today");
        assert_eq!(whole.fact(ResultFile::Cache, "date"), "unknown");
    }

    #[test]
    fn the_folder_holds_the_kept_files_and_nothing_else() {
        let entries = fs::read_dir(crate::root().join(FOLDER)).expect("a folder");
        let mut names: Vec<String> = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect();
        // Measured by tasks of their own.
        names.retain(|name| !["failover.json", "watchdog.json", "shards.json"].contains(&name.as_str()));
        names.sort();
        let mut expected = FILES.map(ResultFile::name).to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn the_kept_files_are_of_the_same_peers() {
        let archive = Archive::read(crate::root()).expect("kept results");
        for program in ["PostgreSQL", "pgbouncer", "pgpool"] {
            let mut versions = FILES.map(|file| archive.fact(file, program)).to_vec();
            // A file that needs no PgBouncer was measured without.
            versions.retain(|version| !version.contains(crate::bench::programs::UNASKED));
            versions.dedup();
            assert_eq!(versions.len(), 1, "one table shows several versions of {program}: {versions:?}; measure all files again");
        }
    }
}
