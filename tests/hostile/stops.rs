//! A shard stops in time, whatever its clients do.

use super::attacker::{Half, Joined, SERVER, geometry, offer};
use super::bed::{Bed, alone, settings_of, until};
use super::process::{Process, commands, say};
use reclane::ids::Incarnation;
use reclane::lane::LaneOffer;
use reclane::options::Side;
use reclane::rpc::Scheme;
use std::time::Duration;

/// Less than a client has for being let in, which is 10 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(9);

/// In a process of its own: one end of lanes, for which the parent speaks.
pub fn play(changes: &[(String, String)]) {
    let settings = settings_of(Side::Client, changes);
    let half = Half::new(geometry(&settings));
    let bytes = offer(&half, &settings, Incarnation(0), Scheme::Single).encode();
    say(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    for _ in commands() {}
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    text.as_bytes().chunks(2).map(byte).collect()
}

/// Connections to a process's abstract sockets that it has not accepted. Columns: ..., inode, path.
fn unaccepted(process: &Process) -> usize {
    let folder = format!("/proc/{}/fd", process.pid());
    let links = std::fs::read_dir(folder).expect("procfs").filter_map(|entry| entry.ok()?.path().read_link().ok());
    let own: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = std::fs::read_to_string("/proc/net/unix").expect("procfs");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| {
            let mut columns = line.split_whitespace().skip(6);
            Some((columns.next()?, columns.next()?))
        })
        .collect();
    let is_own = |path: &str| rows.iter().any(|(inode, of)| *of == path && own.contains(&format!("socket:[{inode}]")));
    rows.iter().filter(|(inode, path)| *inode == "0" && is_own(path)).count()
}

#[test]
fn a_client_that_stands_still_while_it_is_let_in_does_not_keep_the_shard_from_stopping() {
    let _alone = alone();
    let bed = Bed::start(&[("commit-scheme", "single")]);
    let mut client = Process::start("half a client", bed.changes());
    let mut offer = LaneOffer::decode(&from_hex(&client.hear())).expect("an offer");
    client.freeze();
    let joined = Joined::new(&bed);
    offer.incarnation = joined.incarnation;
    joined.control.publish_lanes(SERVER, offer.encode()).expect("published");
    until("the shard's call at the client", || (unaccepted(&client) > 0).then_some(()));
    bed.server.stop(STOP_TIMEOUT).expect("stops");
    assert_eq!(bed.server.stats().lanes, 0);
    client.thaw();
    client.tell("go on");
}
