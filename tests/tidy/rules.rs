//! Rules about single lines, functions and files.

use crate::source::{Source, find_word};
use std::path::Path;

/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// Most lines of a file.
const FILE_LINES_MAX: usize = 600;

/// Functions and files fit on a few screens.
pub fn sizes(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    let extension = Path::new(&source.path).extension().and_then(|e| e.to_str()).unwrap_or("");
    // The header of the C API is generated, and one page per function by intent.
    let counted = ["rs", "c", "cpp", "sh", "py"].contains(&extension);
    if counted && source.raw.len() > FILE_LINES_MAX {
        problems.push(format!("{}: {} lines; at most {FILE_LINES_MAX}", source.path, source.raw.len()));
    }
    for (name, line, lines) in source.functions() {
        if lines > FUNCTION_LINES_MAX {
            problems.push(format!("{}:{line}: fn {name} has {lines} lines; at most {FUNCTION_LINES_MAX}", source.path));
        }
    }
    problems
}

/// Every unsafe block and impl says why it is sound.
pub fn safety(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in source.code.iter().enumerate() {
        let Some(column) = find_word(line, "unsafe") else { continue };
        let rest = line[column + "unsafe".len()..].trim_start();
        let opens = rest.starts_with('{') || find_word(rest, "impl") == Some(0) || rest.is_empty();
        if opens && !source.has_safety_comment(at) {
            problems.push(format!("{}:{}: unsafe without '// SAFETY:' above it", source.path, at + 1));
        }
    }
    problems
}

/// Every ordering stronger than Relaxed names its partner in a comment within three lines.
pub fn orderings(source: &Source) -> Vec<String> {
    let strong = ["Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];
    let named = ["Acquire", "Release", "AcqRel", "SeqCst", "pair", "Pair", "partner", "Partner"];
    let mut problems = Vec::new();
    for (number, line) in source.shipped() {
        if !source.path.starts_with("src/") || !strong.iter().any(|s| line.contains(s)) {
            continue;
        }
        let comment = source.comments_before(number - 1, 3);
        if !named.iter().any(|n| comment.contains(n)) {
            problems.push(format!("{}:{number}: an ordering without a comment that names its partner", source.path));
        }
    }
    problems
}

/// A failure is a value: shipped code takes nothing out of a result by force. (`expect` states an invariant of our own.)
pub fn unwraps(source: &Source) -> Vec<String> {
    let banned = [".unwrap()", ".unwrap_err()", "unreachable_unchecked", "unwrap_unchecked"];
    let mut problems = Vec::new();
    for (number, line) in source.shipped().filter(|_| source.path.starts_with("src/")) {
        if let Some(name) = banned.iter().find(|n| line.contains(*n)) {
            problems.push(format!("{}:{number}: '{name}' in code that ships", source.path));
        }
    }
    problems
}

/// Nothing is left open.
pub fn left_open(source: &Source) -> Vec<String> {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ign", "ore"),
    ];
    report(source, &words, "is left open")
}

/// No path of one machine, no host of a package registry.
pub fn places(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in source.raw.iter().enumerate() {
        for folder in [concat!("/ro", "ot"), concat!("/wo", "rk"), concat!("/ho", "me"), concat!("/Us", "ers")] {
            let stands = line.match_indices(folder).any(|(i, _)| {
                let behind = line[i + folder.len()..].chars().next();
                let before = line[..i].chars().next_back();
                let starts = !before.is_some_and(|c| c.is_alphanumeric() || "._-/}$*)".contains(c));
                starts && (behind.is_none() || behind.is_some_and(|c| "/\"'` :;,.".contains(c)))
            });
            if stands {
                problems.push(format!("{}:{}: '{folder}' is a path of one machine", source.path, at + 1));
            }
        }
    }
    let hosts = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("pythonhosted", ".org"),
        concat!("debian", ".org"),
        concat!("npmjs", ".org"),
        concat!("pkg", ".dev"),
    ];
    problems.extend(report(source, &hosts, "is a host of a package registry; packages are named, not placed"));
    problems
}

/// Words that sell, and words about how the text came about.
pub fn words(source: &Source) -> Vec<String> {
    let banned = [
        concat!("blaz", "ing"),
        concat!("seam", "less"),
        concat!("lever", "ages"),
        concat!("cutting-", "edge"),
        concat!("world-", "class"),
        concat!("effort", "less"),
        concat!("state-of-", "the-art"),
        concat!("del", "ve"),
        concat!("revolution", "ary"),
        concat!("clau", "de"),
        concat!("anth", "ropic"),
        concat!("chat", "gpt"),
        concat!("the integr", "ator"),
        concat!("the seed", "'s"),
        concat!("design", ".md"),
        concat!("recstore", ".md"),
        concat!("limits", ".md"),
    ];
    report(source, &banned, "does not belong in this repository")
}

fn report(source: &Source, banned: &[&str], what: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, line) in source.raw.iter().enumerate() {
        // Words with a capital are meant as they stand; the rest in any case.
        let lower = line.to_lowercase();
        let found = banned.iter().find(|w| {
            let exact = w.chars().any(char::is_uppercase);
            find_word(if exact { line } else { &lower }, w).is_some()
        });
        if let Some(word) = found {
            problems.push(format!("{}:{}: '{word}' {what}", source.path, at + 1));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) -> usize {
        rule(&Source::new(path, text)).len()
    }

    #[test]
    fn sizes_can_fail() {
        let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES_MAX - 1));
        assert_eq!(problems(sizes, "src/a.rs", &long), 1);
        let right = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES_MAX - 2));
        assert_eq!(problems(sizes, "src/a.rs", &right), 0);
        assert_eq!(problems(sizes, "examples/a.cpp", &"\n".repeat(FILE_LINES_MAX + 1)), 1);
        assert_eq!(problems(sizes, "examples/a.cpp", &"\n".repeat(FILE_LINES_MAX)), 0);
    }

    #[test]
    fn safety_can_fail() {
        assert_eq!(problems(safety, "src/a.rs", "let x =\n    unsafe { *p };\n"), 1);
        assert_eq!(problems(safety, "src/a.rs", "unsafe impl Send for X {}\n"), 1);
        assert_eq!(problems(safety, "src/a.rs", "// SAFETY: p lives\nlet y = 1;\nlet x = unsafe { *p };\n"), 1);
        assert_eq!(problems(safety, "src/a.rs", "// SAFETY: p lives.\nlet x =\n    unsafe { *p };\n"), 0);
        assert_eq!(problems(safety, "src/a.rs", "#[unsafe(no_mangle)]\npub unsafe fn f() {}\n// unsafe { }\n"), 0);
    }

    #[test]
    fn orderings_can_fail() {
        assert_eq!(problems(orderings, "src/a.rs", "a.load(Ordering::Acquire);\n"), 1);
        let far = "// Acquire: pairs with the Release in f.\nx();\ny();\nz();\nw();\na.load(Ordering::Acquire);\n";
        assert_eq!(problems(orderings, "src/a.rs", far), 1);
        assert_eq!(
            problems(orderings, "src/a.rs", "// Acquire: pairs with the Release in f.\na.load(Ordering::Acquire);\n"),
            0
        );
        assert_eq!(problems(orderings, "src/a.rs", "a.load(Ordering::Relaxed);\n"), 0);
    }

    #[test]
    fn unwraps_can_fail() {
        assert_eq!(problems(unwraps, "src/a.rs", "let x = y.unwrap();\n"), 1);
        assert_eq!(problems(unwraps, "src/a.rs", "let x = y.unwrap_or(0);\n"), 0);
        assert_eq!(problems(unwraps, "src/a.rs", "#[cfg(test)]\nmod tests {\n    fn f() { y.unwrap(); }\n}\n"), 0);
    }

    #[test]
    fn left_open_can_fail() {
        assert_eq!(problems(left_open, "scripts/a.sh", concat!("# TO", "DO: later\n")), 1);
        assert_eq!(problems(left_open, "src/a.rs", concat!("todo", "!();\n")), 1);
        assert_eq!(problems(left_open, "src/a.rs", concat!("#[ign", "ore]\n")), 1);
        assert_eq!(problems(left_open, "src/a.rs", "// to do the work\n"), 0);
    }

    #[test]
    fn places_can_fail() {
        assert_eq!(problems(places, "docs/a.md", concat!("see /wo", "rk/main\n")), 1);
        assert_eq!(problems(places, "docs/a.md", concat!("\"/ro", "ot\"\n")), 1);
        assert_eq!(problems(places, "docs/a.md", concat!("from crates", ".io\n")), 1);
        assert_eq!(problems(places, "docs/a.md", "keys/workers, $dir/root/x, src/homes\n"), 0);
    }

    #[test]
    fn words_can_fail() {
        assert_eq!(problems(words, "README.md", concat!("a Seam", "less thing\n")), 1);
        assert_eq!(problems(words, "README.md", "a plain thing\n"), 0);
    }
}
