//! The committed header is what the sources give. `UPDATE_HEADER=1 cargo test --test header` rewrites it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The nouns, in the order of the header.
const NOUNS: &[&str] = &[
    "version",
    "error",
    "options",
    "event",
    "store",
    "state",
    "server",
    "client",
    "request",
    "ending",
    "outcome",
    "buffer",
    "info",
    "health",
    "metrics",
    "profile",
    "checkpoint",
    "restore",
    "rank",
    "rank_checkpoint",
    "region",
    "operation",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn source(noun: &str) -> String {
    fs::read_to_string(root().join(format!("src/capi/{noun}.rs"))).unwrap()
}

/// Names of the exported functions of one file, in order.
fn functions(text: &str) -> Vec<&str> {
    let after_mark = text.split("#[unsafe(no_mangle)]").skip(1);
    after_mark.map(|rest| rest.split("fn ").nth(1).unwrap().split('(').next().unwrap()).collect()
}

/// The comment that explains a noun: the file's own.
fn noun_comment(text: &str) -> String {
    let rule = "-".repeat(100);
    let mut comment = format!("/* {rule}\n");
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        writeln!(comment, " *{line}").unwrap();
    }
    comment.push_str(" */\n\n");
    comment
}

/// Where the comment of a function begins in the header.
fn comment_of(header: &str, function: &str) -> usize {
    let mut at = 0;
    for line in header.split_inclusive('\n') {
        let declares = line.starts_with(|first: char| first.is_ascii_alphabetic())
            && (line.contains(&format!(" {function}(")) || line.contains(&format!("*{function}(")));
        if declares {
            return header[..at].rfind("/*").unwrap();
        }
        at += line.len();
    }
    panic!("{function} is not declared in the header")
}

/// Comments of one line on one line, and a star before each line of the longer ones.
fn tidy_comments(raw: &str) -> String {
    let mut out = String::new();
    let mut lines = raw.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "/*" {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let indent = &line[..line.len() - 2];
        let comment: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "*/").collect();
        let text = |line: &str| line.strip_prefix(indent).unwrap_or(line).trim_end().to_owned();
        if let [only] = comment.as_slice() {
            writeln!(out, "{indent}/*{} */", text(only)).unwrap();
            continue;
        }
        for (i, line) in comment.iter().enumerate() {
            writeln!(out, "{indent}{}{}", if i == 0 { "/*" } else { " *" }, text(line)).unwrap();
        }
        writeln!(out, "{indent} */").unwrap();
    }
    out
}

fn generate() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config).with_src(root().join("src/error.rs"));
    for noun in NOUNS {
        builder = builder.with_src(root().join(format!("src/capi/{noun}.rs")));
    }
    let mut raw = Vec::new();
    builder.generate().unwrap().write(&mut raw);
    let mut header = tidy_comments(&String::from_utf8(raw).unwrap());
    for noun in NOUNS {
        let text = source(noun);
        if let Some(first) = functions(&text).first() {
            let at = comment_of(&header, first);
            header.insert_str(at, &noun_comment(&text));
        }
    }
    header
}

#[test]
fn committed_header_is_what_the_sources_give() {
    let path = root().join("include/reclane/reclane.h");
    let fresh = generate();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differing = committed.lines().zip(fresh.lines()).position(|(ours, theirs)| ours != theirs);
    assert!(
        committed == fresh,
        "include/reclane/reclane.h differs from the sources at line {:?}; UPDATE_HEADER=1 cargo test --test header \
         rewrites it",
        differing.map(|at| at + 1)
    );
}

#[test]
fn comments_fit_on_a_screen() {
    let header = generate();
    let in_comment = |line: &&str| line.trim_start().starts_with("/*") || line.trim_start().starts_with("* ");
    let long: Vec<&str> = header.lines().filter(in_comment).filter(|line| line.chars().count() > 125).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_function_says_from_which_threads_and_for_how_long() {
    let header = generate();
    for function in NOUNS.iter().map(|noun| source(noun)).collect::<Vec<_>>().iter().flat_map(|text| functions(text)) {
        let begin = comment_of(&header, function);
        let comment = &header[begin..begin + header[begin..].find("*/").unwrap()];
        for needed in ["Threads: ", "Blocks: "] {
            assert!(comment.contains(needed), "{function} does not say '{needed}'");
        }
    }
}

#[test]
fn every_exported_function_is_in_the_list_of_exports() {
    let listed = fs::read_to_string(root().join("ctests/abi/exports.txt")).unwrap();
    let listed: BTreeSet<&str> = listed.lines().collect();
    let texts: Vec<String> = capi_files().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let exported: BTreeSet<&str> = texts.iter().flat_map(|text| functions(text)).collect();
    assert_eq!(exported, listed, "ctests/abi/exports.txt is the list of exported functions");
}

fn capi_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("src/capi")).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension() == Some("rs".as_ref())).collect()
}

/// The number behind `#define NAME`.
fn macro_value(header: &str, name: &str) -> u32 {
    let line = header.lines().find(|line| line.starts_with(&format!("#define {name} "))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn versions_agree_everywhere() {
    let header = generate();
    let version = env!("CARGO_PKG_VERSION");
    let [major, minor, patch] =
        ["MAJOR", "MINOR", "PATCH"].map(|part| macro_value(&header, &format!("RECLANE_VERSION_{part}")));
    assert_eq!(format!("{major}.{minor}.{patch}"), version);
    assert!(header.contains(&format!("#define RECLANE_VERSION_STRING \"{version}\"")));
    assert_eq!((major << 16) | (minor << 8) | patch, reclane::capi::reclane_version_number());
    let abi = macro_value(&header, "RECLANE_ABI_VERSION");
    assert_eq!(abi, reclane::capi::reclane_abi_version());
    let build = fs::read_to_string(root().join("build.rs")).unwrap();
    assert!(build.contains(&format!("-soname,libreclane.so.{abi}\"")), "build.rs names another SONAME");
    let cmake = fs::read_to_string(root().join("cmake/CMakeLists.txt")).unwrap();
    assert!(cmake.contains(&format!("project(reclane VERSION {version} ")), "cmake/CMakeLists.txt has another version");
    assert!(cmake.contains(&format!("set(RECLANE_ABI {abi})")), "cmake/CMakeLists.txt has another ABI number");
    assert!(Path::new(&root()).join("include/reclane/reclane.hpp").exists());
}

#[test]
fn no_file_with_functions_is_left_out() {
    for entry in fs::read_dir(root().join("src/capi")).unwrap() {
        let path = entry.unwrap().path();
        let noun = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            functions(&text).is_empty() || NOUNS.contains(&noun.as_str()),
            "src/capi/{noun}.rs has functions and is not in NOUNS"
        );
    }
}
