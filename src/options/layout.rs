//! What both ends must agree on, as text and as a digest.

use super::table::{Settings, TABLE};
use crate::wire::WIRE_VERSION;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

impl Settings {
    /// Everything that shapes the layout of memory or the routing of keys, as lines of `name=value` with the options'
    /// names, and the digests of the deployment file: a refusal names what the user can set. Two processes can
    /// talk to each other exactly when their texts are equal.
    #[must_use]
    pub fn layout(&self) -> String {
        let mut text = format!("wire_version={WIRE_VERSION}\n");
        for (spec, value) in TABLE.iter().zip(self.to_values()).filter(|(spec, _)| spec.shapes_layout) {
            text.push_str(&format!("{}={value}\n", spec.name));
        }
        if let Some(digests) = self.contract {
            text.push_str(&format!("deployment-file={digests}\n"));
        }
        text
    }

    /// Lanes to each shard that a client connects when it opens.
    #[must_use]
    pub fn lanes_at_open(&self) -> u32 {
        let needed = self.async_depth.div_ceil(self.slots_per_qp.max(1)).saturating_add(1);
        if self.qps_at_open == 0 { needed } else { self.qps_at_open }.min(self.qps_per_client_per_shard)
    }

    /// FNV-1a of [`Settings::layout`].
    #[must_use]
    pub fn digest(&self) -> u64 {
        fnv_1a(&self.layout())
    }
}

/// FNV-1a with 64 bits.
pub(super) fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// The first thing that two layouts disagree on: name, our value, their value. `(absent)` stands for a line that one of
/// them lacks.
#[must_use]
pub fn layout_difference(ours: &str, theirs: &str) -> Option<(String, String, String)> {
    let absent = || "(absent)".to_owned();
    let owned = |name: &str, a: Option<&str>, b: Option<&str>| {
        Some((name.to_owned(), a.map_or_else(absent, str::to_owned), b.map_or_else(absent, str::to_owned)))
    };
    for (name, value) in lines(ours) {
        let other = lookup(theirs, name);
        if other != Some(value) {
            return owned(name, Some(value), other);
        }
    }
    let (name, value) = lines(theirs).find(|(name, _)| lookup(ours, name).is_none())?;
    owned(name, None, Some(value))
}

fn lines(layout: &str) -> impl Iterator<Item = (&str, &str)> {
    layout.lines().map(|line| line.split_once('=').unwrap_or((line, "")))
}

fn lookup<'a>(layout: &'a str, wanted: &str) -> Option<&'a str> {
    lines(layout).find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Options, Side};

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let mut options = Options::new();
        for (name, value) in pairs {
            options.set(name, value).unwrap();
        }
        options.settings(Side::Both).unwrap()
    }

    #[test]
    fn a_layout_option_changes_the_digest_and_is_named() {
        let ours = settings(&[]);
        let theirs = settings(&[("slots-per-qp", "2")]);
        assert_ne!(ours.digest(), theirs.digest());
        let difference = layout_difference(&ours.layout(), &theirs.layout());
        assert_eq!(difference, Some(("slots-per-qp".to_owned(), "1".to_owned(), "2".to_owned())));
    }

    #[test]
    fn other_options_do_not() {
        let ours = settings(&[]);
        let theirs = settings(&[("rdma-wait-timeout-ms", "5"), ("log-level", "debug"), ("client-id", "0")]);
        assert_eq!(ours.digest(), theirs.digest());
        assert_eq!(layout_difference(&ours.layout(), &theirs.layout()), None);
    }

    #[test]
    fn every_option_that_shapes_the_layout_is_a_line_of_it() {
        let layout = settings(&[]).layout();
        for spec in TABLE {
            assert_eq!(lookup(&layout, spec.name).is_some(), spec.shapes_layout, "{}", spec.name);
        }
        assert_eq!(lookup(&layout, "wire_version"), Some("1"));
    }

    #[test]
    fn a_missing_line_is_a_difference_whoever_lacks_it() {
        let absent = "(absent)".to_owned();
        let named = |a: &str, b: &str| Some(("b".to_owned(), a.to_owned(), b.to_owned()));
        assert_eq!(layout_difference("a=1\nb=2\n", "a=1\n"), named("2", &absent));
        assert_eq!(layout_difference("a=1\n", "a=1\nb=2\n"), named(&absent, "2"));
    }

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(fnv_1a("a"), 0xaf63_dc4c_8601_ec8c);
        let settings = settings(&[]);
        assert_eq!(settings.digest(), fnv_1a(&settings.layout()));
    }
}
