//! The counters file, byte for byte, as pure functions. docs/metrics.md has the same in words.
//!
//! Everything is 8-byte words of the machine's byte order (little-endian): a head, descriptions of series, then the words
//! they name. A file describes itself, so that a reader of another release shows what it does not know by name.

use super::histogram;
use super::metrics::Kind;
use crate::error::{Error, Result, Status};

/// The first word: `RCLNCNT1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RCLNCNT1");
/// The version of the layout. Another one is refused.
pub const VERSION: u32 = 1;
/// Words of the head.
pub const HEAD_WORDS: usize = 48;
/// Words of one description.
pub const SERIES_WORDS: usize = 24;
/// Words of a pair of cache lines: rows of different threads begin that far apart.
pub const LINE_WORDS: usize = 16;
/// Longest name of a series.
pub const NAME_BYTES: usize = 64;
/// Longest labels of a series.
pub const LABELS_BYTES: usize = 96;
/// Largest file that is read.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Most series of a file.
pub const SERIES_MAX: usize = 1 << 17;

/// Where the head's words are that change, or that others look for.
pub mod place {
    /// Microseconds since 1970 when gauges were last brought up to date.
    pub const UPDATED_US: usize = 8;
    /// The port of the metrics over HTTP; 0: none.
    pub const PORT: usize = 12;
}

const TEXT_WORDS: usize = 8;
const DEPLOYMENT_AT: usize = 16;
const NAMESPACE_AT: usize = 24;
const HOST_AT: usize = 32;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves a shard.
    Server,
    /// It is a client.
    Client,
}

impl Role {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
        }
    }
}

/// Whose file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The process.
    pub pid: u32,
    /// What it is.
    pub role: Role,
    /// When it was started, in the kernel's ticks since boot: tells it from a later process of the same pid.
    pub start_ticks: u64,
    /// The pid namespace that `pid` is of.
    pub pid_namespace: u64,
    /// Microseconds since 1970.
    pub created_us: u64,
    /// Microseconds since 1970 of the last refresh of gauges.
    pub updated_us: u64,
    /// Its shard, or its client number.
    pub number: u32,
    /// Shards of the deployment.
    pub num_shards: u32,
    /// Its life.
    pub incarnation: u128,
    /// The port of its metrics over HTTP; 0: none.
    pub port: u32,
    /// The deployment's name.
    pub deployment: String,
    /// The deployment's namespace.
    pub namespace: String,
    /// The host.
    pub host: String,
}

/// One series: a metric with values of its labels, and the words that make its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The metric.
    pub name: String,
    /// As in Prometheus' text, without braces: `shard="0",op="get"`. May be empty.
    pub labels: String,
    /// What kind of number it is.
    pub kind: Kind,
    /// The first word.
    pub at: usize,
    /// Words from one row to the next.
    pub stride: usize,
    /// Rows: their words are added up, or the largest counts.
    pub rows: usize,
}

impl Series {
    /// Words of one row.
    #[must_use]
    pub fn width(&self) -> usize {
        if self.kind == Kind::Histogram { histogram::WORDS } else { 1 }
    }
}

/// Head and descriptions of a file of `total_words`.
///
/// # Errors
/// `Bug` for a name or labels that are too long, or a series outside the file.
pub fn encode(head: &Head, series: &[Series], total_words: usize) -> Result<Vec<u64>> {
    let mut words = vec![0_u64; HEAD_WORDS];
    words[0] = MAGIC;
    words[1] = pair(VERSION, HEAD_WORDS as u64);
    words[2] = total_words as u64 * 8;
    words[3] = pair(u32::try_from(HEAD_WORDS).unwrap_or(0), series.len() as u64);
    words[4] = pair(head.pid, if head.role == Role::Server { 1 } else { 2 });
    words[5] = head.start_ticks;
    words[6] = head.pid_namespace;
    words[7] = head.created_us;
    words[place::UPDATED_US] = head.updated_us;
    words[9] = pair(head.number, u64::from(head.num_shards));
    let life = head.incarnation.to_le_bytes();
    words[10..12].copy_from_slice(&packed::<2>(&life));
    words[place::PORT] = u64::from(head.port);
    for (at, text) in [(DEPLOYMENT_AT, &head.deployment), (NAMESPACE_AT, &head.namespace), (HOST_AT, &head.host)] {
        // Only for people: cut off rather than refused.
        let shown = text.as_bytes().get(..TEXT_WORDS * 8).unwrap_or(text.as_bytes());
        words[at..at + TEXT_WORDS].copy_from_slice(&packed::<TEXT_WORDS>(shown));
    }
    for one in series {
        let last = one.at + one.rows.saturating_sub(1) * one.stride + one.width();
        if one.name.len() > NAME_BYTES || one.labels.len() > LABELS_BYTES || last > total_words {
            return Err(Error::new(
                Status::Bug,
                format!("the series {}{{{}}} cannot be described", one.name, one.labels),
            ));
        }
        words.push(pair(one.kind.code(), (one.name.len() | one.labels.len() << 16) as u64));
        words.push(one.at as u64);
        words.push(pair(u32::try_from(one.stride).unwrap_or(0), one.rows as u64));
        words.push(one.width() as u64);
        words.extend(packed::<{ NAME_BYTES / 8 }>(one.name.as_bytes()));
        words.extend(packed::<{ LABELS_BYTES / 8 }>(one.labels.as_bytes()));
    }
    Ok(words)
}

/// Reads head and descriptions, and believes nothing: every series that is returned lies within `words`.
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn decode(words: &[u64]) -> Result<(Head, Vec<Series>)> {
    let at = |place: usize| words.get(place).copied().unwrap_or(0);
    if words.len() < HEAD_WORDS || at(0) != MAGIC {
        return Err(bad("it is no counters file, or was not finished"));
    }
    let (version, head_words) = halves(at(1));
    if version != VERSION || head_words as usize != HEAD_WORDS {
        return Err(bad(format!("its layout has version {version}; this program reads version {VERSION}")));
    }
    if at(2) != words.len() as u64 * 8 {
        return Err(bad(format!("it says that it has {} bytes, and has {}", at(2), words.len() * 8)));
    }
    let (first, count) = halves(at(3));
    let (first, count) = (first as usize, count as usize);
    if count > SERIES_MAX || first < HEAD_WORDS || first + count * SERIES_WORDS > words.len() {
        return Err(bad(format!("it describes {count} series from word {first} on, which it has no room for")));
    }
    let (pid, role) = halves(at(4));
    let role = match role {
        1 => Role::Server,
        2 => Role::Client,
        other => return Err(bad(format!("it is of a process of role {other}, which is unknown"))),
    };
    let (number, num_shards) = halves(at(9));
    let head = Head {
        pid,
        role,
        start_ticks: at(5),
        pid_namespace: at(6),
        created_us: at(7),
        updated_us: at(place::UPDATED_US),
        number,
        num_shards,
        incarnation: u128::from(at(10)) | u128::from(at(11)) << 64,
        port: halves(at(place::PORT)).0,
        deployment: text(&words[DEPLOYMENT_AT..DEPLOYMENT_AT + TEXT_WORDS], TEXT_WORDS * 8)?,
        namespace: text(&words[NAMESPACE_AT..NAMESPACE_AT + TEXT_WORDS], TEXT_WORDS * 8)?,
        host: text(&words[HOST_AT..HOST_AT + TEXT_WORDS], TEXT_WORDS * 8)?,
    };
    let described = &words[first..first + count * SERIES_WORDS];
    let series = described.chunks_exact(SERIES_WORDS).map(|one| series(one, words.len())).collect::<Result<_>>()?;
    Ok((head, series))
}

fn series(described: &[u64], total: usize) -> Result<Series> {
    let (kind, lengths) = halves(described[0]);
    let (stride, rows) = halves(described[2]);
    let (name_bytes, labels_bytes) = ((lengths & 0xffff) as usize, (lengths >> 16) as usize);
    let kind = Kind::from_code(kind).ok_or_else(|| bad(format!("a series has the kind {kind}, which is unknown")))?;
    let (name, labels) = described[4..].split_at(NAME_BYTES / 8);
    let name = text(name, name_bytes)?;
    let one = Series {
        labels: text(labels, labels_bytes)?,
        kind,
        at: usize::try_from(described[1]).unwrap_or(usize::MAX),
        stride: stride as usize,
        rows: rows as usize,
        name,
    };
    let behind = one.rows.saturating_sub(1).checked_mul(one.stride).and_then(|words| words.checked_add(one.width()));
    let end = behind.and_then(|words| words.checked_add(one.at));
    // Rows that lie on each other would make a small file cost much time.
    let spread = one.rows <= 1 || one.stride >= one.width();
    if described[3] != one.width() as u64 || !spread || end.is_none_or(|end| end > total) {
        return Err(bad(format!("the series '{}' lies outside the file", one.name)));
    }
    Ok(one)
}

fn bad(why: impl Into<String>) -> Box<Error> {
    Error::new(Status::InvalidArgument, why)
}

fn pair(low: u32, high: u64) -> u64 {
    u64::from(low) | high << 32
}

#[allow(clippy::cast_possible_truncation)] // the halves are what is wanted
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn packed<const WORDS: usize>(bytes: &[u8]) -> [u64; WORDS] {
    core::array::from_fn(|word| {
        let mut eight = [0_u8; 8];
        let from = bytes.get(word * 8..).unwrap_or(&[]);
        let count = from.len().min(8);
        eight[..count].copy_from_slice(&from[..count]);
        u64::from_le_bytes(eight)
    })
}

/// Text of so many bytes at most, up to the first zero. It goes to terminals and into other formats: printable only.
fn text(words: &[u64], bytes: usize) -> Result<String> {
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes).take_while(|b| *b != 0).collect();
    let text = String::from_utf8(all).map_err(|_| bad("a name in it is not UTF-8"))?;
    if bytes > words.len() * 8 || text.chars().any(char::is_control) {
        return Err(bad("a name in it is too long or has control characters"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> Head {
        Head {
            pid: 4711,
            role: Role::Client,
            start_ticks: 99,
            pid_namespace: 4_026_531_836,
            created_us: 1_700_000_000_000_000,
            updated_us: 1_700_000_000_000_001,
            number: 3,
            num_shards: 2,
            incarnation: u128::MAX - 7,
            port: 9100,
            deployment: "ads".to_owned(),
            namespace: "default".to_owned(),
            host: "node-1".to_owned(),
        }
    }

    fn image() -> (Vec<Series>, Vec<u64>) {
        let at = HEAD_WORDS + 2 * SERIES_WORDS;
        let labels = "shard=\"0\",op=\"get\"".to_owned();
        let series = vec![
            Series { name: "reclane_a_total".into(), labels, kind: Kind::Counter, at, stride: 16, rows: 3 },
            Series { name: "b".into(), labels: String::new(), kind: Kind::Gauge, at: at + 48, stride: 0, rows: 1 },
        ];
        let mut words = encode(&head(), &series, at + 64).unwrap();
        words.resize(at + 64, 7);
        (series, words)
    }

    #[test]
    fn what_was_written_is_read() {
        let (series, words) = image();
        assert_eq!(decode(&words).unwrap(), (head(), series));
        // The bytes are a promise to readers of other releases.
        assert_eq!(&words[0].to_le_bytes(), b"RCLNCNT1");
        assert_eq!((words[1], words[4]), (1 | 48 << 32, 4711 | 2 << 32));
        assert_eq!(words[HEAD_WORDS], 1 | 15 << 32 | 18 << 48);
    }

    #[test]
    fn garbage_is_refused_with_its_reason() {
        let spoiled = |place: usize, value: u64| {
            let (_, mut words) = image();
            words[place] = value;
            decode(&words).unwrap_err().message
        };
        assert!(decode(&[]).unwrap_err().message.contains("no counters file"));
        assert!(spoiled(0, 5).contains("no counters file"));
        assert!(spoiled(1, 2 | 48 << 32).contains("version 2"));
        assert!(spoiled(2, 8).contains("says that it has 8 bytes"));
        assert!(spoiled(3, 48 | 0xffff_ffff << 32).contains("no room"));
        assert!(spoiled(4, 9 << 32).contains("role 0") || spoiled(4, 9 << 32).contains("role 9"));
        assert!(spoiled(HEAD_WORDS, 77).contains("kind 77"));
        assert!(spoiled(HEAD_WORDS + 1, u64::MAX).contains("outside the file"));
        assert!(spoiled(HEAD_WORDS + 2, 1 << 63).contains("outside the file"));
        assert!(spoiled(HEAD_WORDS + 4, u64::from_le_bytes(*b"a\x1b[31mxx")).contains("control characters"));
        assert!(spoiled(HEAD_WORDS + 4, u64::MAX).contains("UTF-8"));
    }

    proptest! {
        #[test]
        fn no_change_makes_it_read_outside(changes in proptest::collection::vec((0_usize..160, any::<u64>()), 1..8)) {
            let (_, mut words) = image();
            for (place, value) in changes {
                let count = words.len();
                words[place % count] = value;
            }
            if let Ok((_, series)) = decode(&words) {
                for one in series {
                    let last = one.at + one.rows.saturating_sub(1) * one.stride + one.width();
                    prop_assert!(last <= words.len());
                }
            }
        }
    }
}
