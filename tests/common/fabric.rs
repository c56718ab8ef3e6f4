//! The fabric that tests of whole deployments run on: `shm`, or what the environment says.

use reclane::options::Options;

/// Sets the options of `RECLANE_TEST_ON`, "name=value" with blanks between, for tests that run on another fabric
/// than they would; on devices, that of `RECLANE_TEST_DEVICES` (names with commas between) with this number, counted round.
pub fn set_given(options: &mut Options, device: usize) {
    let given = std::env::var("RECLANE_TEST_ON").unwrap_or_default();
    for (name, value) in given.split_whitespace().filter_map(|pair| pair.split_once('=')) {
        options.set(name, value).expect("a valid option in RECLANE_TEST_ON");
    }
    if let Ok(devices) = std::env::var("RECLANE_TEST_DEVICES") {
        let devices: Vec<&str> = devices.split(',').collect();
        options.set("rdma-device", devices[device % devices.len()]).expect("a device");
    }
}
