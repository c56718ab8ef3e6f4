//! Reads the sources and holds the borders that a compiler does not know: which room names which, where the doors to the
//! clock, the atomics and the NIC are, how long a function gets, what a comment must say.
//!
//! Each rule is a function from a file to its problems, and each has a test beside it with a sample that breaks it.

mod borders;
mod rules;
mod source;

use source::Source;

type Rule = fn(&Source) -> Vec<String>;

fn hold(rule: Rule) {
    let sources = source::read_tree();
    let has = |path: &str| sources.iter().any(|s| s.path == path);
    assert!(has("src/lib.rs") && has("src/wire/word.rs") && has("Cargo.toml"), "the tree was not found");
    let problems: Vec<String> = sources.iter().flat_map(rule).collect();
    assert!(problems.is_empty(), "{} problem(s):\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn rooms_import_downwards_only() {
    hold(borders::imports);
    hold(borders::supers);
}

#[test]
fn doors_have_one_doorman() {
    hold(borders::doors);
}

#[test]
fn pure_rooms_are_pure() {
    hold(borders::purity);
}

#[test]
fn the_library_prints_nothing() {
    hold(borders::silence);
}

#[test]
fn functions_and_files_are_short() {
    hold(rules::sizes);
}

#[test]
fn unsafe_says_why_it_is_sound() {
    hold(rules::safety);
}

#[test]
fn orderings_name_their_partner() {
    hold(rules::orderings);
}

#[test]
fn failures_are_values() {
    hold(rules::unwraps);
}

#[test]
fn nothing_is_left_open() {
    hold(rules::left_open);
}

#[test]
fn no_paths_of_a_machine() {
    hold(rules::places);
}

#[test]
fn plain_words() {
    hold(rules::words);
}
