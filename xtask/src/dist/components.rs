//! The list of components in CycloneDX's format, from cargo's metadata: the crates that the program is linked from or built by.
//!
//! Source: CycloneDX 1.5, JSON; package URLs of type `cargo`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Release;
use crate::cargo::cargo;

pub fn write(release: &Release) -> Result<()> {
    let output = cargo(&["metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let lock = fs::read_to_string(release.root.join("Cargo.lock"))?;
    let page = list(&metadata, &checksums(&lock), &release.version)?;
    let file = release.folder.join(format!("weir-{}.cdx.json", release.version));
    fs::write(file, serde_json::to_string_pretty(&page)? + "\n")?;
    Ok(())
}

/// SHA-256 of crates, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for block in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'));
            line.map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

fn list(metadata: &Value, sums: &BTreeMap<(String, String), String>, version: &str) -> Result<Value> {
    let packages = metadata["packages"].as_array().context("no packages in cargo's metadata")?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("no dependencies in cargo's metadata")?;
    let main = packages.iter().find(|package| package["name"] == "weir").and_then(|package| package["id"].as_str());
    let main = main.context("no package weir in cargo's metadata")?;
    let needed = needed(nodes, main);
    let reference = |id: &str| {
        let package = packages.iter().find(|package| package["id"] == id)?;
        Some(format!("pkg:cargo/{}@{}", package["name"].as_str()?, package["version"].as_str()?))
    };
    let mut components = Vec::new();
    for package in packages {
        let (Some(id), Some(name), Some(number)) =
            (package["id"].as_str(), package["name"].as_str(), package["version"].as_str())
        else {
            continue;
        };
        if id == main || !needed.contains_key(id) {
            continue;
        }
        let mut component = json!({
            "type": "library", "name": name, "version": number, "bom-ref": reference(id), "purl": reference(id),
        });
        if let Some(licence) = package["license"].as_str() {
            // Older crates write a slash for OR.
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(sum) = sums.get(&(name.to_owned(), number.to_owned())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        components.push(component);
    }
    let dependencies: Vec<Value> = needed
        .iter()
        .filter_map(|(id, on)| {
            let on: Vec<String> = on.iter().filter_map(|id| reference(id)).collect();
            Some(json!({ "ref": reference(id)?, "dependsOn": on }))
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "weir", "version": version, "bom-ref": reference(main), "purl": reference(main),
            "licenses": [{ "expression": "Apache-2.0" }],
        }},
        "components": components, "dependencies": dependencies,
    }))
}

/// All crates that the first one leads to, with those they need; crates of tests only are left out.
fn needed<'a>(nodes: &'a [Value], first: &'a str) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut open = vec![first];
    while let Some(id) = open.pop() {
        if found.contains_key(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let uses = node.and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let uses = uses.filter(|dependency| {
            let kinds = dependency["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
        });
        let on: BTreeSet<&str> = uses.filter_map(|dependency| dependency["pkg"].as_str()).collect();
        open.extend(on.iter().copied());
        found.insert(id, on);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_the_program_is_made_of_and_nothing_of_its_tests() {
        let package = |name: &str, licence: &str| json!({ "name": name, "version": "1.0.0", "id": name, "license": licence });
        let metadata = json!({
            "packages": [package("weir", "Apache-2.0"), package("a", "MIT/Apache-2.0"), package("b", "MIT"), package("test", "MIT")],
            "resolve": { "nodes": [
                { "id": "weir", "deps": [
                    { "pkg": "a", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "test", "dep_kinds": [{ "kind": "dev" }] },
                ]},
                { "id": "a", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": "dev" }, { "kind": "build" }] }] },
            ]},
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n\n[[package]]\nname = \"weir\"\nversion = \"1.0.0\"\n";
        let page = list(&metadata, &checksums(lock), "1.0.0").unwrap();
        let names: Vec<&str> = page["components"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let first = &page["components"][0];
        assert_eq!(first["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(first["hashes"][0]["content"], "abc");
        assert_eq!(first["purl"], "pkg:cargo/a@1.0.0");
        let weir = page["dependencies"].as_array().unwrap().iter().find(|one| one["ref"] == "pkg:cargo/weir@1.0.0").unwrap();
        assert_eq!(weir["dependsOn"], json!(["pkg:cargo/a@1.0.0"]));
    }
}
