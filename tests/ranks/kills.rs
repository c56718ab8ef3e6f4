//! Jobs whose ranks are killed while checkpoints are taken and restored.

use crate::checkpoints::saved;
use crate::support::{Changes, Directory, Process, with};
use reclane::checkpoint::steps::LABELS;

/// All ranks of a job, each a process; `role` names what each does.
fn start(changes: &Changes, ranks: u32, role: impl Fn(u32) -> String) -> (Vec<Process>, String) {
    let mut first = Process::start(&role(0), changes);
    let Some(port) = first.try_hear() else { return (vec![first], String::new()) };
    let joined = with(changes, "rdma-control-plane-port", &port);
    let mut all = vec![first];
    all.extend((1..ranks).map(|n| Process::start(&role(n), &with(&joined, "shard-id", n))));
    all[1..].iter_mut().for_each(|process| drop(process.try_hear()));
    (all, port)
}

/// Tells all the same; what they answer, none of those that died.
fn all(processes: &mut [Process], command: &str) -> Vec<Option<String>> {
    processes.iter_mut().for_each(|process| process.try_tell(command));
    processes.iter_mut().map(Process::try_hear).collect()
}

fn plain(_: u32) -> String {
    "saver".to_owned()
}

/// Steps that only the leader passes.
const LEADERS: &[&str] = &["epoch-promised", "manifest-written", "manifest-renamed", "committed", "collected"];

/// A first checkpoint is there; while the second is taken, a rank dies at the step. Afterwards all ranks have the first or
/// all have the second, and the second if anybody was told that it is committed.
fn die_at(label: &str, victim: u32) {
    let directory = Directory::new();
    let changes = with(&saved(2, &directory), "checkpoint-hold-timeout-ms", 5000);
    let (mut ranks, _) = start(&changes, 2, plain);
    all(&mut ranks, "set 1");
    let said = all(&mut ranks, "checkpoint");
    assert!(said.iter().all(|said| said.as_ref().is_some_and(|said| said.starts_with("epoch "))), "{said:?}");
    drop(ranks);
    let role = |n| if n == victim { format!("saver that dies at {label}") } else { plain(n) };
    let (mut ranks, _) = start(&changes, 2, role);
    // The beginning of a world passes some steps too.
    if ranks.len() == 2 {
        all(&mut ranks, "set 2");
        let said = all(&mut ranks, "checkpoint");
        let told = said.iter().flatten().any(|said| said.starts_with("epoch "));
        drop(ranks);
        let (mut ranks, _) = start(&changes, 2, plain);
        let found = all(&mut ranks, "word 0");
        let second = found[0].as_deref() == Some("2");
        assert!(found.iter().all(|one| one.as_deref() == Some(if second { "2" } else { "1" })), "{label}: {found:?}");
        assert!(second || !told, "{label}, rank {victim}: it was said to be committed");
        if ["committed", "collected", "manifest-renamed"].contains(&label) {
            assert!(second, "{label}");
        }
        let said = all(&mut ranks, "checkpoint");
        assert!(said.iter().all(|said| said.as_ref().is_some_and(|said| said.starts_with("epoch "))), "{said:?}");
    } else {
        assert!(label == "epoch-promised", "{label}");
        let (mut ranks, _) = start(&changes, 2, plain);
        assert_eq!(all(&mut ranks, "word 0"), [Some("1".to_owned()), Some("1".to_owned())]);
    }
}

#[test]
fn rank_0_dies_at_every_step() {
    LABELS.iter().filter(|label| !label.starts_with("restore")).for_each(|label| die_at(label, 0));
}

#[test]
fn rank_1_dies_at_every_step() {
    let own = LABELS.iter().filter(|label| !label.starts_with("restore") && !LEADERS.contains(label));
    own.for_each(|label| die_at(label, 1));
}

/// A restore that is interrupted is begun again.
#[test]
fn a_rank_dies_while_it_is_restored() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let (mut ranks, _) = start(&changes, 2, plain);
    all(&mut ranks, "set 5");
    all(&mut ranks, "checkpoint");
    drop(ranks);
    for (label, victim) in [
        ("restore-verified", 0),
        ("restore-chosen", 0),
        ("restore-filled", 0),
        ("restore-chosen", 1),
        ("restore-filled", 1),
    ] {
        let role = |n| if n == victim { format!("saver that dies at {label}") } else { plain(n) };
        let (mut ranks, _) = start(&changes, victim + 1, role);
        assert_eq!(ranks.pop().and_then(|mut doomed| doomed.try_hear()), None, "{label}: rank {victim} dies");
        drop(ranks);
        let (mut ranks, _) = start(&changes, 2, plain);
        assert_eq!(all(&mut ranks, "word 0"), [Some("5".to_owned()), Some("5".to_owned())], "{label}");
    }
}

#[test]
fn a_rank_of_the_old_world_that_wakes_up_is_fenced() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let (mut ranks, port) = start(&changes, 2, plain);
    all(&mut ranks, "set 1");
    // Lanes both ways, which the sleeper still believes in.
    assert_eq!(all(&mut ranks, "write 0")[1].as_deref(), Some("ok"));
    let told = all(&mut ranks, "checkpoint");
    assert!(told[0].as_ref().is_some_and(|said| said.starts_with("epoch ")), "{told:?}");
    let mut sleeper = ranks.pop().expect("rank 1");
    sleeper.freeze();
    drop(ranks);
    // The new world has the old one's address, and rank 1 is not there yet when the old one wakes up.
    let mut first = Process::start("saver", &with(&changes, "rdma-control-plane-port", &port));
    assert_eq!(first.hear(), port);
    sleeper.thaw();
    // The memory of the dead is there until it has heard of their end; it is nobody's.
    while sleeper.ask("write 0") == "ok" {}
    for command in ["write 0", "add 0", "checkpoint", "barrier"] {
        let said = sleeper.ask(command);
        assert!(said != "ok" && !said.starts_with("epoch "), "{command}: {said}");
    }
    let joined = with(&with(&changes, "rdma-control-plane-port", &port), "shard-id", 1);
    let mut second = Process::start("saver", &joined);
    second.hear();
    for rank in [&mut first, &mut second] {
        assert_eq!(rank.ask("word 0"), "1");
    }
    for command in ["write 0", "add 0", "checkpoint"] {
        let said = sleeper.ask(command);
        assert!(said != "ok" && !said.starts_with("epoch "), "{command}: {said}");
    }
    let mut ranks = [first, second];
    let said = all(&mut ranks, "checkpoint");
    assert!(said.iter().all(|said| said.as_ref().is_some_and(|said| said.starts_with("epoch "))), "{said:?}");
    assert_eq!(all(&mut ranks, "word 0"), [Some("1".to_owned()), Some("1".to_owned())]);
    assert_eq!(all(&mut ranks, "word 2"), [Some("0".to_owned()), Some("0".to_owned())]);
}

/// Numbers from a seed, the same everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs the job to its end, or kills somebody after so many words of rank 0. What all ranks had at the end.
fn life(changes: &Changes, ranks: u32, kill: Option<(u64, Option<usize>)>) -> Option<Vec<String>> {
    let (mut all, _) = start(changes, ranks, |_| "worker".to_owned());
    if let Some((words, victim)) = kill {
        let mut said = (0..words).map_while(|_| all[0].try_hear());
        let over = said.any(|said| !said.starts_with("round "));
        match victim {
            Some(_) if over => {}
            Some(one) => {
                all[one].kill();
                // The others notice, and give up by themselves.
                for (n, process) in all.iter_mut().enumerate().filter(|(n, _)| *n != one) {
                    let last = process.last_words();
                    assert!(last.iter().any(|said| said.starts_with("end ") || said.starts_with("lost ")), "rank {n}");
                }
            }
            None => all.iter_mut().for_each(|one| {
                one.kill();
            }),
        }
        return None;
    }
    let ends = all.iter_mut().map(|process| process.last_words().pop().expect("a word"));
    Some(ends.collect())
}

/// kill -9 of one rank, of rank 0 with leader and control plane, or of all, at moments that a seed chooses: the job ends as
/// one that nobody disturbed. RECLANE_SEED and RECLANE_KILLS say more.
#[test]
fn a_job_that_is_killed_at_any_moment_ends_as_an_undisturbed_one() {
    let ranks = 3;
    let seed = number_from("RECLANE_SEED", u64::from(std::process::id()));
    let kills = number_from("RECLANE_KILLS", 6);
    println!("seed {seed}, {kills} kills");
    let quiet = Directory::new();
    let expected = life(&saved(ranks, &quiet), ranks, None).expect("ends");
    assert!(expected.iter().all(|said| said.starts_with("end ")), "{expected:?}");
    let directory = Directory::new();
    let changes = saved(ranks, &directory);
    let mut draw = Draw(seed);
    for kill in 0..kills {
        let victim = [Some(0), Some(1), Some(2), None][usize::try_from(draw.below(4)).expect("small")];
        let words = draw.below(40);
        println!("kill {kill}: {victim:?} after {words} words; checkpoints {:?}", directory.committed());
        assert_eq!(life(&changes, ranks, Some((words, victim))), None);
    }
    let found = life(&changes, ranks, None).expect("ends");
    assert_eq!(found, expected, "seed {seed}");
    assert!(!directory.committed().is_empty());
}
