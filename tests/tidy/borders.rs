//! Which room may name which, and which file is the only one to name a thing.

use crate::source::{Source, find_word, is_word};

/// Rooms from the top down: each may import the rooms of later rows, and itself. Rooms of one row do not know each other.
const LAYERS: &[&[&str]] = &[
    &["capi", "simulate"],
    &["engine"],
    &["checkpoint", "ps"],
    &["rpc"],
    &["memory", "lane", "control"],
    &["fabric"],
    &["wire"],
    &["observe"],
    &["options"],
    &["numa", "thread"],
    &["error"],
    &["ids", "sync", "time"],
];

/// Imports against the layers, each with its reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("src/options/", "wire", "the digest of the layout covers the wire version"),
    ("src/time.rs", "sync", "the clock's origin is set once"),
    ("src/sync.rs", "time", "bounded waits take a deadline"),
];

/// Imports that the layers would allow, but that would let a room do what is another's work.
const DENIED: &[(&str, &[&str], &str)] = &[
    ("src/capi/", &["rpc", "memory", "control"], "the C face translates; the engine acts"),
    ("src/wire/", &["sync", "time", "options", "observe"], "layouts are pure functions"),
];

/// Room of a file of the library: the part of its path below src/.
fn room_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/").filter(|p| !p.starts_with("bin/") && *p != "lib.rs")?;
    Some(inside.split('/').next()?.trim_end_matches(".rs"))
}

fn layer_of(room: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&room))
}

/// Rooms that a line names by `crate::`, groups included when they open on this line.
fn rooms_named(code: &[String], at: usize) -> Vec<String> {
    let mut rooms = Vec::new();
    let line = &code[at];
    for (from, _) in line.match_indices("crate::") {
        if line[..from].ends_with(is_word) || line[..from].ends_with('$') {
            continue;
        }
        let rest = &line[from + "crate::".len()..];
        if rest.starts_with('{') {
            let mut group = rest.to_owned();
            group.extend(code[at + 1..].iter().take(40).map(String::as_str));
            rooms.extend(group_heads(&group));
        } else {
            rooms.push(rest.chars().take_while(|c| is_word(*c)).collect());
        }
    }
    rooms
}

/// First path segments of a `{a::b, c, d::{e, f}}` group.
fn group_heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut depth = 0;
    let mut word = String::new();
    let mut fresh = true;
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if depth == 1 && fresh && is_word(c) => word.push(c),
            _ if !word.is_empty() => {
                heads.push(core::mem::take(&mut word));
                fresh = false;
            }
            _ => {}
        }
    }
    if !word.is_empty() {
        heads.push(word);
    }
    heads
}

/// Imports point downwards only.
pub fn imports(source: &Source) -> Vec<String> {
    let Some(room) = room_of(&source.path) else { return Vec::new() };
    let Some(own) = layer_of(room) else {
        return vec![format!("{}: room '{room}' is not in the table of rooms of tests/tidy/borders.rs", source.path)];
    };
    let mut problems = Vec::new();
    for (number, _) in source.shipped() {
        for other in rooms_named(&source.code, number - 1).iter().filter(|r| *r != room) {
            // Not a room: a macro or item at the crate's root.
            let Some(layer) = layer_of(other) else { continue };
            let excepted = EXCEPTIONS.iter().any(|(p, r, _)| source.path.starts_with(p) && r == other);
            let denied = DENIED.iter().find(|(p, rs, _)| source.path.starts_with(p) && rs.contains(&other.as_str()));
            if let Some((_, _, why)) = denied {
                problems.push(format!("{}:{number}: room '{room}' must not name '{other}': {why}", source.path));
            } else if layer <= own && !excepted && other != "observe" {
                problems.push(format!(
                    "{}:{number}: room '{room}' must not import '{other}', which is not below it",
                    source.path
                ));
            }
        }
    }
    problems
}

/// `super::` does not leave a room: what comes from another room is named by `crate::`.
pub fn supers(source: &Source) -> Vec<String> {
    let Some(inside) = source.path.strip_prefix("src/").filter(|p| !p.starts_with("bin/")) else { return Vec::new() };
    let parts = inside.split('/').count();
    let depth = if inside.ends_with("/mod.rs") { parts - 1 } else { parts };
    let mut problems = Vec::new();
    for (number, line) in source.shipped() {
        let longest = (1..6).take_while(|n| line.contains(&"super::".repeat(*n))).last().unwrap_or(0);
        // Inline modules that ship are one level at most (a list of constants), so one more level is granted when indented.
        let nested = usize::from(line.starts_with("    "));
        if longest >= depth + nested && longest > 0 {
            problems.push(format!("{}:{number}: 'super::' leaves the room; write 'crate::'", source.path));
        }
    }
    problems
}

/// A name that only certain files may speak: names, files (prefixes), reason.
const DOORS: &[(&[&str], &[&str], &str)] = &[
    (&["std::sync", "core::sync", "spin::"], &["src/sync.rs"], "atomics and locks come from crate::sync"),
    (&["Instant", "SystemTime", "thread::sleep"], &["src/time.rs"], "the clock is read in crate::time"),
    (&["std::thread::spawn", "use std::thread;"], &[], "threads have names: std::thread::Builder"),
    (&["rdma_sys"], &["src/fabric/verbs/sys.rs"], "one file stands between the library and rdma-sys"),
    (
        &["env::var", "env::var_os", "env::vars"],
        &["src/options/", "src/bin/"],
        "the environment is read by the options",
    ),
    (&["env::set_var", "env::remove_var"], &[], "the environment is the host program's"),
    (&["process::exit", "libc::exit", "libc::_exit"], &["src/bin/"], "the library never ends the host program"),
    (
        &["libc::fork", "libc::signal", "libc::sigaction", "libc::setlocale"],
        &["src/bin/"],
        "that is the host program's",
    ),
];

/// Each door has one doorman.
pub fn doors(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (names, files, why) in DOORS {
        if files.iter().any(|f| source.path.starts_with(f)) {
            continue;
        }
        for (number, line) in source.shipped() {
            // The name of a lock's error is neither a lock nor an atomic.
            let line = &line.replace("std::sync::PoisonError", "");
            if let Some(name) = names.iter().find(|n| find_word(line, n).is_some()) {
                problems.push(format!("{}:{number}: '{name}' has no place here: {why}", source.path));
            }
        }
    }
    problems
}

/// Files that hold state machines and codecs.
const PURE: &[&str] = &[
    "src/wire/",
    "src/control/session",
    "src/control/barriers",
    "src/control/health",
    "src/control/history",
    "src/control/identity",
    "src/control/messages",
    "src/control/offers",
    "src/control/overview.rs",
    "src/control/refusal",
    "src/control/requests",
    "src/control/view",
    "src/control/waits",
    "src/lane/",
    "src/rpc/retry",
    "src/rpc/window",
    "src/checkpoint/format/",
    "src/checkpoint/cut/",
    "src/checkpoint/manifest",
    "src/checkpoint/advise",
];
/// Codecs of tonic's messages. Its name is granted to them, and nothing else.
const MESSAGES: &[&str] = &["src/control/codec", "src/control/overview_codec"];
/// Files without `unsafe`.
const NO_UNSAFE: &[&str] = &[
    "src/wire/",
    "src/options/",
    "src/control/session",
    "src/lane/state",
    "src/checkpoint/format/",
    "src/checkpoint/cut/",
];

/// Pure files decide and never act.
pub fn purity(source: &Source) -> Vec<String> {
    let banned = [
        "std::thread",
        "thread::spawn",
        "time::now",
        "now()",
        "std::net",
        "std::fs",
        "libc",
        "tokio",
        "tonic",
        "getrandom",
    ];
    let mut problems = Vec::new();
    for (number, line) in source.shipped() {
        let path = &source.path;
        if NO_UNSAFE.iter().any(|p| path.starts_with(p)) && find_word(line, "unsafe").is_some() {
            problems.push(format!("{path}:{number}: 'unsafe' in a pure room"));
        }
        let speaks = MESSAGES.iter().any(|p| path.starts_with(p));
        let pure = speaks || PURE.iter().any(|p| path.starts_with(p));
        let acts = banned.iter().find(|n| !(speaks && **n == "tonic") && find_word(line, n).is_some());
        if let Some(name) = acts.filter(|_| pure) {
            problems.push(format!("{path}:{number}: '{name}' in a pure room: it is handed the time and events"));
        }
    }
    problems
}

/// Things that the library leaves to its host program: standard output and standard error.
pub fn silence(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/") || source.path.starts_with("src/bin/") {
        return Vec::new();
    }
    let banned = ["println!", "eprintln!", "print!", "eprint!", "dbg!", "io::stdout", "io::stderr"];
    let mut problems = Vec::new();
    for (number, line) in source.shipped() {
        let Some(name) = banned.iter().find(|n| find_word(line, n).is_some()) else { continue };
        // What was asked for by an option: a sink on standard error, profile lines on standard output.
        let asked_for = match *name {
            "io::stderr" => source.path.starts_with("src/observe/"),
            "io::stdout" => source.path == "src/observe/profile.rs",
            _ => false,
        };
        if !asked_for {
            problems.push(format!("{}:{number}: '{name}': the library prints nothing", source.path));
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
    fn imports_can_fail() {
        assert_eq!(problems(imports, "src/wire/a.rs", "use crate::error::Status;\n"), 0);
        assert_eq!(problems(imports, "src/wire/a.rs", "use crate::lane::Lane;\n"), 1);
        assert_eq!(
            problems(imports, "src/rpc/a.rs", "use crate::{\n    wire::Word,\n    engine::{self, Client},\n};\n"),
            1
        );
        assert_eq!(problems(imports, "src/lane/a.rs", "fn f() { crate::control::x() }\n"), 1);
        assert_eq!(problems(imports, "src/rpc/a.rs", "use crate::observe::event;\n"), 0);
        assert_eq!(problems(imports, "src/capi/a.rs", "use crate::rpc::Slot;\n"), 1);
        assert_eq!(problems(imports, "src/attic/a.rs", "\n"), 1);
        assert_eq!(problems(imports, "src/wire/a.rs", "#[cfg(test)]\nmod tests {\n    use crate::lane::Lane;\n}\n"), 0);
    }

    #[test]
    fn supers_can_fail() {
        assert_eq!(problems(supers, "src/wire/mod.rs", "use super::lane::Lane;\n"), 1);
        assert_eq!(problems(supers, "src/wire/a.rs", "use super::Word;\n"), 0);
        assert_eq!(problems(supers, "src/wire/a.rs", "use super::super::lane::Lane;\n"), 1);
        assert_eq!(problems(supers, "src/fabric/shm/a.rs", "use super::super::Qp;\n"), 0);
    }

    #[test]
    fn doors_can_fail() {
        for bad in
            ["use std::sync::Mutex;", "use std::time::Instant;", "std::thread::sleep(d);", "use rdma_sys::ibv_qp;"]
        {
            assert_eq!(problems(doors, "src/rpc/a.rs", bad), 1, "{bad}");
        }
        for bad in [
            "std::env::var(x)",
            "std::env::set_var(x, y)",
            "std::thread::spawn(f)",
            "std::process::exit(1)",
            "libc::fork()",
        ] {
            assert_eq!(problems(doors, "src/rpc/a.rs", bad), 1, "{bad}");
        }
        assert_eq!(problems(doors, "src/sync.rs", "use std::sync::Mutex;"), 0);
        assert_eq!(problems(doors, "src/fabric/verbs/sys.rs", "use rdma_sys::ibv_qp;"), 0);
        assert_eq!(problems(doors, "src/rpc/a.rs", "// Instant, std::sync\nlet s = \"SystemTime\";"), 0);
    }

    #[test]
    fn purity_can_fail() {
        assert_eq!(problems(purity, "src/wire/a.rs", "unsafe { x() }"), 1);
        assert_eq!(problems(purity, "src/options/a.rs", "unsafe fn x() {}"), 1);
        assert_eq!(problems(purity, "src/lane/state.rs", "let t = crate::time::now();"), 1);
        assert_eq!(problems(purity, "src/control/session.rs", "use tonic::Status;"), 1);
        assert_eq!(problems(purity, "src/control/codec.rs", "use tonic::Status;\nlet t = time::now();"), 1);
        assert_eq!(problems(purity, "src/rpc/window.rs", "let t = now();"), 1);
        assert_eq!(problems(purity, "src/wire/mod.rs", "#![forbid(unsafe_code)]"), 0);
        assert_eq!(problems(purity, "src/rpc/a.rs", "unsafe { x() }"), 0);
    }

    #[test]
    fn silence_can_fail() {
        assert_eq!(problems(silence, "src/rpc/a.rs", "println!(\"x\");"), 1);
        assert_eq!(problems(silence, "src/rpc/a.rs", "let e = std::io::stderr();"), 1);
        assert_eq!(problems(silence, "src/observe/sink.rs", "let e = std::io::stderr();"), 0);
        assert_eq!(problems(silence, "src/observe/sink.rs", "let e = std::io::stdout();"), 1);
        assert_eq!(problems(silence, "src/bin/reclane/main.rs", "println!(\"x\");"), 0);
    }
}
