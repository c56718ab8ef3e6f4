//! `reclane simulate --checkpoint`: checkpoints and restores in simulated deployments.

use super::{Arguments, as_json, is_good, print, requests};
use reclane::error::Result;
use reclane::simulate::checkpoint::{MISTAKE_SEEDS_MAX, Mistake, hunt, hunt_mistake};
use serde_json::json;

pub fn work(arguments: &Arguments) -> Result<bool> {
    let (found, taken) = hunt(arguments.from, arguments.seeds)?;
    let caught = arguments.hunted(Mistake::ALL, |mistake| hunt_mistake(*mistake, 0, MISTAKE_SEEDS_MAX))?;
    if arguments.json {
        let mut object = as_json(&found, &caught, MISTAKE_SEEDS_MAX);
        let checkpoints = json!({
            "committed": taken.committed,
            "aborted": taken.aborted,
            "restored": taken.restored,
            "in_doubt": taken.in_doubt,
        });
        object.insert("checkpoints".to_owned(), checkpoints);
        println!("{}", serde_json::Value::Object(object));
    } else {
        println!(
            "{} seeds, {} faults; checkpoints: {} committed, {} came to nothing, {} restored with {} requests in doubt",
            found.seeds, found.faults, taken.committed, taken.aborted, taken.restored, taken.in_doubt
        );
        println!("{}", requests(&found));
        print(&found, &caught, MISTAKE_SEEDS_MAX);
    }
    Ok(is_good(&found, &caught))
}
