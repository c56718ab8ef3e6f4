//! The table as text: for the terminal and for docs/options.md.

use super::choices::Side;
use super::legacy::{Accepted, LEGACY};
use super::names;
use super::spec::{Kind, Spec};
use super::table::TABLE;
use core::fmt::Write;

/// The options as `reclane options` prints them.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    for spec in TABLE {
        let default = if spec.default.is_empty() { "empty" } else { spec.default };
        let _ = writeln!(text, "--{} ({}; {}; default {default})", spec.name, spec.side, spec.bounds());
        let _ = writeln!(text, "    {}", spec.meaning);
        let others = other_names(spec);
        if !others.is_empty() {
            let _ = writeln!(text, "    also --{}", others.join(", --"));
        }
        let _ = writeln!(text, "    environment: {}", variables(spec).join(", "));
    }
    text
}

/// One option in full, as `reclane options NAME` prints it.
#[must_use]
pub fn describe(spec: &Spec) -> String {
    let mut text = format!("{}\n    {}\n\n", spec.name, spec.meaning);
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "    {:<13}{value}", format!("{what}:"));
    };
    line("default", if spec.default.is_empty() { "empty" } else { spec.default });
    line("range", &spec.bounds());
    line("read by", if spec.side == Side::Both { "servers and clients" } else { spec.side.word() });
    if spec.shapes_layout {
        line("layout", "yes: a member whose value differs from the others' is refused when it joins");
    }
    line("flag", &format!("--{}=VALUE", spec.name));
    line("in C", &format!("reclane_options_set(options, \"{}\", \"VALUE\", &error)", spec.name));
    line("environment", &format!("{}; only the op-layer entry reads it", variables(spec).join(", ")));
    let others = other_names(spec);
    if !others.is_empty() {
        line("other names", &others.join(", "));
    }
    line("spelling", "with - or _, with or without rdma- and rdma-rc-");
    text
}

/// The whole of docs/options.md.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    for spec in TABLE {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            spec.name,
            bounds(spec),
            code(spec.default),
            spec.side,
            if spec.shapes_layout { "yes" } else { "" },
            spec.meaning,
        );
    }
    text.push_str(NAMES);
    for spec in TABLE {
        let others: Vec<String> = other_names(spec).iter().map(|name| code(name)).collect();
        let variables: Vec<String> = variables(spec).iter().map(|name| code(name)).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", spec.name, others.join(" "), variables.join(" "));
    }
    text.push_str(DIFFERENT);
    text.push_str(GONE);
    for legacy in LEGACY {
        let except = match legacy.accepted {
            Accepted::Nothing => String::new(),
            Accepted::Word(value) => format!(" (except `{value}`)"),
            Accepted::AnyNumber => " (except a number)".to_owned(),
        };
        let _ = writeln!(text, "| `{}`{except} | {} |", legacy.name, legacy.reason);
    }
    text
}

const INTRODUCTION: &str = "\
# Options

This page is generated from the table in `src/options/table.rs`; `UPDATE_DOCS=1 cargo test options_doc` writes it anew.

There are two entries, and they never mix:

- **PetPS entry**: `reclane_options_set` and the flags of the example programs. The environment is not read.
- **Op-layer entry**: `reclane_client_open_from_environment`. The environment alone; nothing can be set.

Names may be written with dashes or underscores, and with or without the prefixes `rdma-` and `rdma-rc-`:
`rdma_rc_slots_per_qp`, `rdma-slots-per-qp` and `slots-per-qp` are one option. An environment variable is `RECLANE_`
and any spelling of the name, in capitals. It wins over the other variables of its row, and those win from left to
right. An unknown name, an unknown `RECLANE_` or `RECSTORE_RDMA_` variable, a value of the wrong type or out of bounds,
and values that contradict each other are refused with name, value, bound and source. `RECLANE_TEST_` is left to the
project's own tests; `RECSTORE_CONFIG` belongs to the host program and is not read.

An option marked *layout* is part of the deployment digest: a client whose value differs from the server's is refused
when it joins, with both values named.

What `deployment-file` names is read when a server or a client is opened, and counts as if its fields had been set by
name; an option that says something else is refused with both values. All members have a file of the same content, or
none has one: its digests are compared when they join.

`rdma-cq-harvest-interval-ms` is checked and changes nothing. `async-depth` is for programs that read it.

| option | type and bounds | default | side | layout | meaning |
| --- | --- | --- | --- | --- | --- |
";

const NAMES: &str = "
## Other names

| option | also | environment |
| --- | --- | --- |
";

const DIFFERENT: &str = "
Three defaults are not those that RecStore has under these names:

- `rdma-rc-wait-spin-iterations` is 300 (there 0): an answer that is on its way is met before the core is given away.
- `rdma-get-response-mode` is `auto` (there `direct_sg`): the same on `shm`; on `verbs` only rows for which it pays are
  sent from where they lie.
- `numa-id` is `auto` (there 0): memory comes from wherever it is touched first.
";

const GONE: &str = "
## Names of the past

These are refused, so that nobody believes that they took effect. Values that change nothing are taken.

| name | why, and what to use |
| --- | --- |
";

/// Names that differ by more than a prefix or an underscore.
fn other_names(spec: &Spec) -> Vec<String> {
    let mut names: Vec<String> = spec.aliases.iter().map(|alias| (*alias).to_owned()).collect();
    if !names::is_spelling(spec.name, spec.field) {
        names.push(spec.field.replace('_', "-"));
    }
    names
}

fn variables(spec: &Spec) -> Vec<String> {
    let mut names = vec![spec.variable()];
    names.extend(spec.environment.iter().map(|name| (*name).to_owned()));
    names
}

fn code(text: &str) -> String {
    if text.is_empty() { "empty".to_owned() } else { format!("`{text}`") }
}

fn bounds(spec: &Spec) -> String {
    let unit = if spec.unit.is_empty() { String::new() } else { format!(" {}", spec.unit) };
    match spec.kind {
        Kind::Number { min, max } => format!("{min} to {max}{unit}"),
        Kind::OptionalNumber { min, max } => format!("`auto`, or {min} to {max}{unit}"),
        Kind::Choice(words) => words.iter().map(|word| code(word)).collect::<Vec<_>>().join(", "),
        _ => spec.bounds(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with `UPDATE_DOCS=1` to write the page anew.
    #[test]
    fn options_doc_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/options.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap();
            std::fs::write(path, markdown()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == markdown(),
            "docs/options.md differs from the table: UPDATE_DOCS=1 cargo test options_doc"
        );
    }

    #[test]
    fn one_option_is_described_in_full_under_any_of_its_names() {
        for name in ["rdma-rc-slots-per-qp", "slots_per_qp", "--slots-per-qp", "RECLANE_RDMA_RC_SLOTS_PER_QP"] {
            assert_eq!(names::look_up(name).unwrap().field, "slots_per_qp", "{name}");
        }
        for spec in TABLE {
            let text = describe(names::look_up(spec.name).unwrap());
            let default = if spec.default.is_empty() { "empty" } else { spec.default };
            let variable = spec.variable();
            for needed in [spec.name, spec.meaning, default, &spec.bounds(), &variable] {
                assert!(text.contains(needed), "{needed}: {text}");
            }
            for variable in spec.environment {
                assert_eq!(names::look_up(variable).unwrap().name, spec.name, "{variable}");
            }
        }
        let misspelt = names::look_up("slots-per-pq").unwrap_err();
        assert!(misspelt.message.contains("did you mean slots-per-qp?"), "{misspelt}");
        let gone = names::look_up("rdma-put-server-scratch-bytes").unwrap_err();
        assert!(gone.message.contains("use rdma-rc-request-slot-bytes"), "{gone}");
    }

    #[test]
    fn the_help_names_every_option_and_bound() {
        let help = help();
        for spec in TABLE {
            assert!(help.contains(&format!("--{} (", spec.name)), "{}", spec.name);
            assert!(help.contains(&spec.bounds()), "{}", spec.name);
        }
    }
}
