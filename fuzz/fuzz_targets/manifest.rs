//! A manifest is any bytes. What is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reclane::checkpoint::Manifest;

fuzz_target!(|data: &[u8]| {
    // Its checksum is put right half of the time, so that what lies behind it is reached.
    let mut sealed = data.to_vec();
    if data.first().is_some_and(|byte| byte & 1 == 0) && sealed.len() > 4 {
        let end = sealed.len() - 4;
        let crc = crc32c(&sealed[..end]);
        sealed[end..].copy_from_slice(&crc.to_le_bytes());
    }
    if let Ok(manifest) = Manifest::decode(&sealed) {
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }
});

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}
