//! A letter is any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reclane::checkpoint::cut::Message;

fuzz_target!(|data: &[u8]| {
    if let Some(letter) = Message::decode(data) {
        assert_eq!(Message::decode(&letter.encode()), Some(letter));
    }
});
