//! How a lane tells the other side that a request or an answer is complete.

use crate::fabric::Capabilities;

/// The commit scheme of one lane.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// The trailing word commits: the fabric keeps the order of bytes and writes.
    Single = 1,
    /// The trailing word commits once it agrees with a CRC32C of header and payload: no order is assumed.
    Crc = 2,
    /// A write-with-immediate completes at the receiver.
    Imm = 3,
}

impl Scheme {
    /// The scheme with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Scheme> {
        match code {
            1 => Some(Scheme::Single),
            2 => Some(Scheme::Crc),
            3 => Some(Scheme::Imm),
            _ => None,
        }
    }

    /// The name in options and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Single => "single",
            Scheme::Crc => "crc",
            Scheme::Imm => "imm",
        }
    }

    /// What `auto` means on this fabric: `single` where the order is promised, else `crc`.
    #[must_use]
    pub fn pick(capabilities: &Capabilities) -> Scheme {
        if capabilities.ordered_within_write && capabilities.ordered_writes { Scheme::Single } else { Scheme::Crc }
    }

    /// Whether this fabric can carry the scheme.
    #[must_use]
    pub fn fits(self, capabilities: &Capabilities) -> bool {
        self != Scheme::Single || Scheme::pick(capabilities) == Scheme::Single
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promises(ordered_within_write: bool, ordered_writes: bool) -> Capabilities {
        Capabilities { ordered_within_write, ordered_writes, load_store: false, max_inline: 64, max_sge: 4 }
    }

    #[test]
    fn one_word_commits_only_where_both_orders_are_promised() {
        for (within, between, scheme) in [
            (true, true, Scheme::Single),
            (true, false, Scheme::Crc),
            (false, true, Scheme::Crc),
            (false, false, Scheme::Crc),
        ] {
            let fabric = promises(within, between);
            assert_eq!(Scheme::pick(&fabric), scheme, "{fabric:?}");
            assert_eq!(Scheme::Single.fits(&fabric), scheme == Scheme::Single, "{fabric:?}");
            assert!(Scheme::Crc.fits(&fabric) && Scheme::Imm.fits(&fabric), "{fabric:?}");
        }
    }
}
