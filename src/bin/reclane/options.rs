//! `reclane options`.

use reclane::options::{Kind, Spec, TABLE, describe, help, look_up, markdown};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// For commands that take options after `--`.
pub const LISTED: &str = "All options of servers and clients, with bounds and defaults: `reclane options`.";

#[derive(clap::Args)]
pub struct Arguments {
    /// Only this option, in full. Any of its names, its flag or its environment variable.
    #[arg(conflicts_with = "markdown")]
    name: Option<String>,
    /// As docs/options.md.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// As one JSON array; with NAME as one object.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let text = if let Some(name) = &arguments.name {
        match look_up(name) {
            Ok(spec) if arguments.json => format!("{:#}\n", object(spec)),
            Ok(spec) => describe(spec),
            Err(error) => {
                eprintln!("reclane options: {}", error.message);
                return ExitCode::from(2);
            }
        }
    } else if arguments.markdown {
        markdown()
    } else if arguments.json {
        format!("{:#}\n", Value::Array(TABLE.iter().map(object).collect()))
    } else {
        help()
    };
    // A reader that closes the pipe early (head, less) has seen what it wanted.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn object(spec: &Spec) -> Value {
    let mut object = json!({
        "name": spec.name,
        "aliases": spec.aliases,
        "field": spec.field,
        "default": spec.default,
        "unit": spec.unit,
        "side": spec.side.word(),
        "shapes_layout": spec.shapes_layout,
        "variable": spec.variable(),
        "environment": spec.environment,
        "bounds": spec.bounds(),
        "meaning": spec.meaning,
    });
    let (kind, limits) = match spec.kind {
        Kind::Flag => ("flag", json!({})),
        Kind::Number { min, max } => ("number", json!({ "min": min, "max": max })),
        Kind::OptionalNumber { min, max } => ("optional_number", json!({ "min": min, "max": max })),
        Kind::Choice(words) => ("choice", json!({ "words": words })),
        Kind::Name { min_bytes, max_bytes } => ("name", json!({ "min_bytes": min_bytes, "max_bytes": max_bytes })),
        Kind::Text { max_bytes } => ("text", json!({ "max_bytes": max_bytes })),
    };
    object["type"] = json!(kind);
    object["limits"] = limits;
    object
}
