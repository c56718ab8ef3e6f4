//! Ranks that give the device back and take it again.

use crate::support::{Process, hardly_more, of_the_fabric, options, with};

fn both(ranks: &mut [Process], command: &str) -> Vec<String> {
    ranks.iter_mut().for_each(|rank| rank.tell(command));
    ranks.iter_mut().map(Process::hear).collect()
}

fn pair() -> Vec<Process> {
    let changes = with(&options(2), "rdma-wait-timeout-ms", 10_000);
    let mut first = Process::start("rank", &changes);
    let joined = with(&with(&changes, "rdma-control-plane-port", first.hear()), "shard-id", 1);
    let mut second = Process::start("rank", &joined);
    second.hear();
    vec![first, second]
}

/// Lanes both ways and to itself, of both kinds.
fn work(ranks: &mut [Process]) {
    for command in ["write 0", "write 1", "add 0", "add 1"] {
        assert_eq!(both(ranks, command), ["ok", "ok"], "{command}");
    }
}

#[test]
fn nothing_of_the_device_is_left_between_suspend_and_resume_and_work_goes_on() {
    let mut ranks = pair();
    both(&mut ranks, "set 1");
    work(&mut ranks);
    // The second round may still make something that stays.
    let mut settled = Vec::new();
    for round in 2..7_u64 {
        let busy: Vec<_> = ranks.iter().map(Process::holdings).collect();
        assert!(busy.iter().all(|busy| busy.shared_mappings > 0), "{busy:?}");
        assert_eq!(both(&mut ranks, "suspend"), ["ok", "ok"]);
        for rank in &ranks {
            assert_eq!((rank.holdings().shared_mappings, of_the_fabric(rank)), (0, Vec::<String>::new()));
        }
        // What a tool does: it stops the process and looks at it.
        ranks.iter().for_each(Process::freeze);
        ranks.iter().for_each(Process::thaw);
        // The program's memory is there, and its own.
        assert_eq!(both(&mut ranks, "word 0"), [(round - 1).to_string(), (round - 1).to_string()]);
        both(&mut ranks, &format!("set {round}"));
        assert!(both(&mut ranks, "suspend").iter().all(|said| said.starts_with("WRONG_STATE")));
        assert_eq!(both(&mut ranks, "resume"), ["ok", "ok"]);
        assert!(both(&mut ranks, "resume").iter().all(|said| said.starts_with("WRONG_STATE")));
        work(&mut ranks);
        assert_eq!(both(&mut ranks, "word 0"), [round.to_string(), round.to_string()]);
        // Four adds to each in every round: none lost, none twice.
        assert_eq!(both(&mut ranks, "word 2"), [(2 * round).to_string(), (2 * round).to_string()]);
        settled.push(ranks.iter().map(Process::holdings).collect::<Vec<_>>());
    }
    for (first, last) in settled[1].iter().zip(&settled[4]) {
        assert!(hardly_more(first, last), "{settled:?}");
    }
}

#[test]
fn a_rank_that_suspends_alone_is_told_and_goes_on() {
    let mut ranks = pair();
    work(&mut ranks);
    for _ in 0..2 {
        let said = ranks[0].ask("suspend-alone");
        assert!(said.starts_with("STARTUP_TIMEOUT"), "{said}");
        work(&mut ranks);
    }
    assert_eq!(both(&mut ranks, "suspend"), ["ok", "ok"]);
    // Nobody wakes up alone; who has tried can try again.
    let said = ranks[0].ask("resume-alone");
    assert!(said.starts_with("STARTUP_TIMEOUT"), "{said}");
    assert_eq!(both(&mut ranks, "resume"), ["ok", "ok"]);
    work(&mut ranks);
}
