//! Numbers at one moment, by name; and as Prometheus' text.

use super::histogram::Histogram;
use super::layout::Series;
use super::metrics::{self, Kind};
use crate::error::{Error, Result, Status};
use core::fmt::Write;

/// What a series says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A distribution.
    Histogram(Box<Histogram>),
}

/// One series at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The metric.
    pub name: String,
    /// As in Prometheus' text, without braces.
    pub labels: String,
    /// What kind of number it is.
    pub kind: Kind,
    /// The number.
    pub value: Value,
}

impl Sample {
    /// Its number; of a histogram, how many values it has.
    #[must_use]
    pub fn number(&self) -> u64 {
        match &self.value {
            Value::Number(number) => *number,
            Value::Histogram(histogram) => histogram.count(),
        }
    }

    /// The value of one of its labels.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .split(',')
            .filter_map(|label| label.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, v)| v.trim_matches('"'))
    }
}

/// Reads the series out of the words of a page, which has them all.
#[must_use]
pub fn samples(words: &[u64], series: &[Series]) -> Vec<Sample> {
    series
        .iter()
        .map(|one| {
            let row = |row: usize| words.get(one.at + row * one.stride).copied().unwrap_or(0);
            let value = match one.kind {
                Kind::Histogram => {
                    let own = words.get(one.at..one.at + one.width()).unwrap_or(&[]);
                    Value::Histogram(Box::new(Histogram::from_words(own)))
                }
                Kind::Peak => Value::Number((0..one.rows).map(row).max().unwrap_or(0)),
                Kind::Counter | Kind::Gauge => {
                    Value::Number((0..one.rows).fold(0, |sum, index| sum.wrapping_add(row(index))))
                }
            };
            Sample { name: one.name.clone(), labels: one.labels.clone(), kind: one.kind, value }
        })
        .collect()
}

/// A number by name: `name` (over all labels), `name{labels}` with some labels of those it has, and for histograms with
/// `.count`, `.sum`, `.max`, `.p50`, `.p90`, `.p99` or `.p999` behind, in nanoseconds.
///
/// # Errors
/// `InvalidArgument` when there is none.
pub fn lookup(samples: &[Sample], wanted: &str) -> Result<u64> {
    let (series, part) = match wanted.rsplit_once('.') {
        Some((series, part)) if !part.contains(['"', '}']) => (series, part),
        _ => (wanted, ""),
    };
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.trim_end_matches('}')),
        None => (series, ""),
    };
    let asked: Vec<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
    let has = |sample: &&Sample| {
        sample.name == name && asked.iter().all(|label| sample.labels.split(',').any(|own| own == *label))
    };
    let found: Vec<&Sample> = samples.iter().filter(has).collect();
    let Some(first) = found.first() else {
        let known = metrics::find(name).map_or("there is no such metric", |metric| {
            if metric.counted { "it is counted only with metrics=true" } else { "nothing has these labels" }
        });
        return Err(Error::new(
            Status::InvalidArgument,
            format!("'{wanted}' names no number: {known}; docs/metrics.md has the names"),
        ));
    };
    if first.kind != Kind::Histogram {
        if !part.is_empty() {
            return Err(Error::new(Status::InvalidArgument, format!("'{name}' is no histogram, and has no {part}")));
        }
        let numbers = found.iter().map(|sample| sample.number());
        return Ok(if first.kind == Kind::Peak {
            numbers.max().unwrap_or(0)
        } else {
            numbers.fold(0, u64::wrapping_add)
        });
    }
    let mut all = Histogram::default();
    for sample in &found {
        if let Value::Histogram(one) = &sample.value {
            all.merge(one);
        }
    }
    Ok(match part {
        "" | "count" => all.count(),
        "sum" => all.sum,
        "max" => all.max,
        "p50" => all.quantile(500),
        "p90" => all.quantile(900),
        "p99" => all.quantile(990),
        "p999" => all.quantile(999),
        other => {
            let parts = "count, sum, max, p50, p90, p99, p999";
            return Err(Error::new(Status::InvalidArgument, format!("a histogram has {parts}, and no '{other}'")));
        }
    })
}

/// Bounds of Prometheus' buckets: powers of two from 128 ns to 17 s.
const BOUNDS: core::ops::RangeInclusive<u32> = 7..=34;

/// Prometheus' text, version 0.0.4.
#[must_use]
pub fn prometheus(samples: &[Sample]) -> String {
    let mut text = String::new();
    let mut written: Vec<&str> = Vec::new();
    for sample in samples {
        if written.contains(&sample.name.as_str()) {
            continue;
        }
        written.push(&sample.name);
        let meaning = metrics::find(&sample.name).map_or("", |metric| metric.meaning).replace('\\', "\\\\");
        let _ = writeln!(text, "# HELP {} {meaning}\n# TYPE {} {}", sample.name, sample.name, sample.kind.prometheus());
        for one in samples.iter().filter(|other| other.name == sample.name) {
            write_sample(&mut text, one);
        }
    }
    text
}

fn write_sample(text: &mut String, sample: &Sample) {
    let braced = |more: &str| match (sample.labels.as_str(), more) {
        ("", "") => String::new(),
        ("", one) | (one, "") => format!("{{{one}}}"),
        (labels, more) => format!("{{{labels},{more}}}"),
    };
    let name = &sample.name;
    match &sample.value {
        Value::Number(number) => {
            let _ = writeln!(text, "{name}{} {number}", braced(""));
        }
        Value::Histogram(histogram) => {
            for power in BOUNDS {
                let bound = 1_u64 << power;
                let le = format!("le=\"{}\"", seconds(bound));
                let _ = writeln!(text, "{name}_bucket{} {}", braced(&le), histogram.up_to(bound - 1));
            }
            let count = histogram.count();
            let _ = writeln!(text, "{name}_bucket{} {count}", braced("le=\"+Inf\""));
            let _ = writeln!(text, "{name}_sum{} {}", braced(""), seconds(histogram.sum));
            let _ = writeln!(text, "{name}_count{} {count}", braced(""));
        }
    }
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::histogram;
    use crate::sync::{AtomicU64, Ordering};

    fn all() -> Vec<Sample> {
        let words: Vec<AtomicU64> = (0..histogram::WORDS).map(|_| AtomicU64::new(0)).collect();
        [200, 1000, 1_500_000_000].into_iter().for_each(|ns| histogram::add(&words, ns));
        let mut image: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let at = image.len();
        image.extend([3, 4, 9, 2]);
        let one = |name: &str, labels: &str, kind, at, rows| Series {
            name: name.to_owned(),
            labels: labels.to_owned(),
            kind,
            at,
            stride: 1,
            rows,
        };
        let series = [
            one(metrics::name::CLIENT_REQUESTS, "shard=\"0\",op=\"get\"", Kind::Counter, at, 2),
            one(metrics::name::CLIENT_REQUESTS, "shard=\"1\",op=\"get\"", Kind::Counter, at + 2, 1),
            one("reclane_new_peak", "", Kind::Peak, at, 4),
            one(metrics::name::CLIENT_LATENCY, "op=\"get\"", Kind::Histogram, 0, 1),
        ];
        samples(&image, &series)
    }

    #[test]
    fn numbers_are_found_by_name_and_labels() {
        let all = all();
        let find = |name: &str| lookup(&all, name);
        assert_eq!(find("reclane_client_requests_total").unwrap(), 16);
        assert_eq!(find("reclane_client_requests_total{shard=\"1\"}").unwrap(), 9);
        assert_eq!(find("reclane_new_peak").unwrap(), 9);
        assert_eq!(find("reclane_client_latency_seconds.count").unwrap(), 3);
        assert_eq!(find("reclane_client_latency_seconds{op=\"get\"}.p999").unwrap(), 1_500_000_000);
        assert_eq!(all[0].label("op"), Some("get"));
        for wrong in ["nothing", "reclane_client_requests_total{shard=\"7\"}", "reclane_new_peak.p50", ""] {
            assert_eq!(find(wrong).unwrap_err().status, Status::InvalidArgument, "{wrong}");
        }
        assert!(find("reclane_server_service_seconds").unwrap_err().message.contains("metrics=true"));
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let text = prometheus(&all());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "# TYPE reclane_client_requests_total counter");
        assert_eq!(lines[2], "reclane_client_requests_total{shard=\"0\",op=\"get\"} 7");
        assert!(lines.contains(&"reclane_client_latency_seconds_bucket{op=\"get\",le=\"0.000000256\"} 1"), "{text}");
        assert!(lines.contains(&"reclane_client_latency_seconds_bucket{op=\"get\",le=\"+Inf\"} 3"));
        assert!(lines.contains(&"reclane_client_latency_seconds_sum{op=\"get\"} 1.5000012"));
        assert_eq!(lines.iter().filter(|line| line.starts_with("# TYPE reclane_client_requests_total ")).count(), 1);
    }
}
