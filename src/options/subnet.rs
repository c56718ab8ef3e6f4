//! A range of addresses, in the numbering of GIDs.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

/// Addresses that begin alike. IPv4 addresses are those that GIDs hold them as, `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subnet {
    base: u128,
    prefix_bits: u32,
}

/// Bits before an IPv4 address within a GID.
const MAPPED_BITS: u32 = 96;

impl Subnet {
    /// Whether a GID lies within.
    #[must_use]
    pub fn contains(&self, gid: [u8; 16]) -> bool {
        (u128::from_be_bytes(gid) ^ self.base) & self.mask() == 0
    }

    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix_bits).unwrap_or(0)
    }
}

impl FromStr for Subnet {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Subnet, &'static str> {
        const FORM: &str = "a subnet is an address, a slash and a number of bits, as 10.77.0.0/24 or fd00::/64";
        let (address, bits) = text.split_once('/').ok_or(FORM)?;
        let (address, offset, most) = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => (address.to_ipv6_mapped(), MAPPED_BITS, 32),
            Ok(IpAddr::V6(address)) => (address, 0, 128),
            Err(_) => return Err(FORM),
        };
        let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = bits.parse::<u32>().ok().filter(|bits| digits && *bits <= most).ok_or(FORM)?;
        let mut subnet = Subnet { base: u128::from(address), prefix_bits: offset + bits };
        subnet.base &= subnet.mask();
        Ok(subnet)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from(self.base);
        match address.to_ipv4_mapped().filter(|_| self.prefix_bits >= MAPPED_BITS) {
            Some(address) => write!(f, "{address}/{}", self.prefix_bits - MAPPED_BITS),
            None => write!(f, "{address}/{}", self.prefix_bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> [u8; 16] {
        match text.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    #[test]
    fn addresses_are_inside_or_outside() {
        let inside = |subnet: &str, address: &str| subnet.parse::<Subnet>().unwrap().contains(gid(address));
        assert!(inside("10.77.0.0/24", "10.77.0.1") && !inside("10.77.0.0/24", "10.77.1.1"));
        assert!(inside("0.0.0.0/0", "10.77.1.1") && !inside("0.0.0.0/0", "fe80::1"));
        assert!(inside("::/0", "10.77.1.1") && inside("fe80::/64", "fe80::1") && !inside("fe80::/64", "fe80:0:0:1::1"));
        assert!(inside("10.77.0.1/32", "10.77.0.1") && !inside("10.77.0.1/32", "10.77.0.0"));
    }

    #[test]
    fn what_is_no_subnet_is_refused_and_what_is_reads_back_as_written() {
        for bad in
            ["", "10.77.0.0", "10.77.0.0/33", "10.77.0.0/+8", "10.77.0.0/", "x/8", "fe80::/129", "10.77.0.1/24/1"]
        {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
        for good in ["10.77.0.0/24", "fe80::/64", "0.0.0.0/0", "::/0", "1.2.3.4/32", "::1/128"] {
            assert_eq!(good.parse::<Subnet>().unwrap().to_string(), good);
        }
        // An address within it names it too.
        assert_eq!("10.77.0.1/24".parse::<Subnet>().unwrap(), "10.77.0.0/24".parse().unwrap());
    }
}
