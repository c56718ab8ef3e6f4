//! What the documents say of the project is so: licences of all dependencies, the list of dependencies, the programs in
//! the README, the version, the names of events.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Licences under which code may be linked into a closed-source program, with no more than their text shipped along.
const LINKABLE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Licences for tools that run at build or test time and leave nothing of themselves in the library.
const TOOLS_ONLY: &[&str] = &["MPL-2.0"];

/// Whether one alternative of a licence expression is made of allowed licences only.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // "A/B" is an old way to write "A OR B". Parentheses occur only around an OR inside an AND.
    let flat = expression.replace(" / ", " OR ").replace('/', " OR ");
    split_outside(&flat, " AND ").iter().all(|part| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        split_outside(part, " OR ").iter().any(|l| allowed.contains(&l.trim()))
    })
}

fn split_outside(text: &str, separator: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_i32;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if depth == 0 && rest.starts_with(separator) {
            parts.push(String::new());
            rest = &rest[separator.len()..];
            continue;
        }
        depth += i32::from(c == '(') - i32::from(c == ')');
        parts.last_mut().unwrap().push(c);
        rest = &rest[c.len_utf8()..];
    }
    parts
}

/// The package graph of this crate with default features, for the machine that runs the test.
struct Graph {
    packages: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    root: String,
}

impl Graph {
    fn read() -> Graph {
        let cargo = option_env!("CARGO").unwrap_or("cargo");
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let by_id = |list: &Value| -> BTreeMap<String, Value> {
            list.as_array().unwrap().iter().map(|p| (p["id"].as_str().unwrap().to_owned(), p.clone())).collect()
        };
        let root = all["resolve"]["root"].as_str().unwrap().to_owned();
        Graph { packages: by_id(&all["packages"]), nodes: by_id(&all["resolve"]["nodes"]), root }
    }

    /// What ends up in the library, or runs to make it: everything reached by edges of these kinds.
    fn reached(&self, kinds: &[&str]) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut open = vec![self.root.clone()];
        while let Some(id) = open.pop() {
            for dependency in self.nodes[&id]["deps"].as_array().unwrap() {
                let counts = dependency["dep_kinds"].as_array().unwrap().iter().any(|kind| {
                    let kind = kind["kind"].as_str().unwrap_or("normal");
                    // What a dependency needs for its own tests is never built here.
                    kinds.contains(&kind) && (kind != "dev" || id == self.root)
                });
                let package = dependency["pkg"].as_str().unwrap().to_owned();
                if counts && seen.insert(package.clone()) {
                    open.push(package);
                }
            }
        }
        seen
    }

    /// The licence expression of a package; a manifest that names a file only is judged by the file.
    fn licence(&self, id: &str) -> String {
        let package = &self.packages[id];
        if let Some(expression) = package["license"].as_str() {
            return expression.to_owned();
        }
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
        let file = manifest.parent().unwrap().join(package["license_file"].as_str().unwrap_or("LICENSE"));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let is_mit = text.contains("MIT License") && text.contains("Permission is hereby granted, free of charge");
        if is_mit { "MIT".to_owned() } else { format!("unknown (no licence in the manifest, {})", file.display()) }
    }

    fn refused(&self, kinds: &[&str], allowed: &[&str]) -> Vec<String> {
        let judge = |id: &String| {
            let licence = self.licence(id);
            (!is_allowed(&licence, allowed)).then(|| format!("{}: {licence}", self.packages[id]["name"]))
        };
        self.reached(kinds).iter().filter_map(judge).collect()
    }
}

#[test]
fn every_crate_may_be_linked_into_closed_programs() {
    let graph = Graph::read();
    assert!(graph.reached(&["normal"]).len() > 20, "the package graph is empty");
    let refused = graph.refused(&["normal"], LINKABLE);
    assert!(refused.is_empty(), "linked into the library: {refused:?}");
    let tools: Vec<&str> = LINKABLE.iter().chain(TOOLS_ONLY).copied().collect();
    let refused = graph.refused(&["normal", "build", "dev"], &tools);
    assert!(refused.is_empty(), "used to build or test: {refused:?}");
}

#[test]
fn licence_expressions_are_read() {
    assert!(is_allowed("MIT OR GPL-3.0", LINKABLE) && is_allowed("MIT/Apache-2.0", LINKABLE));
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", LINKABLE));
    assert!(!is_allowed("MIT AND GPL-3.0", LINKABLE) && !is_allowed("MPL-2.0", LINKABLE));
    assert!(!is_allowed("(GPL-2.0 OR GPL-3.0) AND MIT", LINKABLE) && !is_allowed("unknown", LINKABLE));
}

/// Names in the first column of the tables of docs/dependencies.md.
fn documented() -> BTreeSet<String> {
    let text = read("docs/dependencies.md");
    let first = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    text.lines().filter_map(first).collect()
}

#[test]
fn every_dependency_is_explained() {
    let graph = Graph::read();
    let declared: BTreeSet<String> = graph.packages[&graph.root]["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(documented(), declared, "docs/dependencies.md (left) and Cargo.toml (right) differ");
}

/// Text of the n-th fenced block of a language, with its place.
fn block(text: &str, language: &str) -> Option<(usize, usize)> {
    let opening = format!("```{language}\n");
    let start = text.find(&opening)? + opening.len();
    Some((start, start + text[start..].find("```\n")?))
}

#[test]
fn the_readme_shows_the_programs_that_are_tested() {
    let mut readme = read("README.md");
    for (language, path) in [("c", "examples/hello.c"), ("cpp", "examples/hello.cpp")] {
        let program = read(path);
        let (start, end) = block(&readme, language).unwrap_or_else(|| panic!("README.md has no block of {language}"));
        if readme[start..end] != program && std::env::var_os("UPDATE_README").is_some() {
            readme.replace_range(start..end, &program);
            std::fs::write(root().join("README.md"), &readme).unwrap();
        } else {
            assert!(
                readme[start..end] == program,
                "the {language} block of README.md is not {path}; UPDATE_README=1 cargo test --test documents"
            );
        }
    }
}

/// Rows (offset, bytes, field) of the first table after a heading of docs/wire.md.
fn wire_table(heading: &str) -> Vec<(usize, usize, String)> {
    let text = read("docs/wire.md");
    let after = &text[text.find(heading).unwrap_or_else(|| panic!("docs/wire.md has no '{heading}'"))..];
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Some((cells.get(1)?.parse().ok()?, cells.get(2)?.parse().ok()?, (*cells.get(3)?).to_owned()))
    };
    after.lines().skip_while(|l| !l.starts_with("| at")).skip(2).map_while(row).collect()
}

/// The field in whose lines two values' pretty Debug forms differ first.
fn changed(before: &str, after: &str) -> Option<String> {
    let mut field = "";
    for (old, new) in before.lines().zip(after.lines()) {
        let name = old.strip_prefix("    ").filter(|l| l.starts_with(char::is_alphabetic));
        field = name.and_then(|l| l.split(':').next()).unwrap_or(field);
        if old != new {
            return Some(field.to_owned());
        }
    }
    None
}

#[test]
fn the_wire_document_has_the_offsets_of_the_code() {
    use reclane::wire::{HEADER_BYTES, RequestHeader, ResponseHeader};
    let request = |bytes: &[u8; HEADER_BYTES]| format!("{:#?}", RequestHeader::from_bytes(bytes));
    let response = |bytes: &[u8; HEADER_BYTES]| format!("{:#?}", ResponseHeader::from_bytes(bytes));
    type Decode = fn(&[u8; HEADER_BYTES]) -> String;
    let decoders: [(&str, Decode); 2] = [("## Request header", request), ("## Response header", response)];
    for (heading, decode) in decoders {
        let mut end = 0;
        for (at, bytes, field) in wire_table(heading) {
            assert_eq!(at, end, "{heading}: {field} leaves a gap or overlaps");
            end = at + bytes;
            for touched in [at, end - 1] {
                let mut header = [0; HEADER_BYTES];
                header[touched] = 1;
                let found = changed(&decode(&[0; HEADER_BYTES]), &decode(&header));
                assert_eq!(found.as_ref(), Some(&field), "{heading}: byte {touched}");
            }
        }
        assert_eq!(end, HEADER_BYTES, "{heading}: the table does not cover the header");
    }
}

#[test]
fn the_change_log_knows_this_version() {
    let heading = format!("## [{}]", env!("CARGO_PKG_VERSION"));
    assert!(read("CHANGELOG.md").contains(&heading), "CHANGELOG.md has no '{heading}'");
}

#[test]
fn both_licences_are_here() {
    assert!(read("LICENSE-MIT").contains("Permission is hereby granted, free of charge"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
    assert_eq!(env!("CARGO_PKG_LICENSE"), "MIT OR Apache-2.0");
}

/// All Rust sources below a folder without their tests, in one text.
fn sources(folder: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("observe/events.rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            text.push_str(source.split("#[cfg(test)]\nmod tests").next().unwrap());
        }
    }
    text
}

#[test]
fn every_name_of_an_event_is_reported_and_explained() {
    let events = read("src/observe/events.rs");
    let constants: Vec<&str> = events.lines().filter_map(|line| line.strip_prefix("pub const ")).collect();
    let names: Vec<&str> = constants.iter().filter_map(|line| line.split(':').next()).collect();
    assert!(names.len() > 40, "{} names", names.len());
    let errors = read("docs/errors.md");
    let table = errors.split("## Events").nth(1).unwrap().split("\n## ").next().unwrap();
    let shown = constants.iter().filter_map(|line| line.split('"').nth(1));
    let unknown: Vec<&str> = shown.filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "the table of events in docs/errors.md has no {unknown:?}");
    let text = sources(&root().join("src"));
    let reported: BTreeSet<&str> = text
        .split("events::")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_uppercase() && c != '_').next())
        .collect();
    let silent: Vec<_> = names.iter().filter(|name| !reported.contains(*name)).collect();
    assert!(silent.is_empty(), "no code reports {silent:?}");
}
