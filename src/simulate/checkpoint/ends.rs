//! The end of a world, and the next one's start from a checkpoint.

use super::deployment::{Deployment, Sleeper};
use super::image::read;
use super::leader::Leader;
use super::member::Member;
use super::mistake::Mistake;
use super::plan::End;
use super::truth::Line;
use crate::checkpoint::verify::{Depth, open_member};
use crate::checkpoint::{Manifest, Role};
use crate::engine::server::checkpoint::windows::SavedWindow;
use crate::error::Result;
use crate::rpc::Window;
use crate::simulate::join::Guest;
use crate::simulate::plan::Actor;
use crate::sync::Arc;
use crate::time::Tick;
use std::collections::BTreeSet;

impl Deployment {
    pub(super) fn step_ends(&mut self) -> Result<()> {
        let now = self.world.now;
        if let Some((until, end)) = self.waiting {
            let moment = self.leader.as_ref().is_some_and(Leader::is_committing);
            if moment || until <= now {
                self.waiting = None;
                self.begin_end(end);
            }
        }
        if let Some((_, end)) = self.end_rest.filter(|(at, _)| *at <= now) {
            self.end_rest = None;
            self.end(end);
        }
        while let Some(at) = self.client_ends.iter().position(|(at, _)| *at <= now) {
            let (_, client) = self.client_ends.swap_remove(at);
            if self.line.survivors.contains_key(&client) {
                self.kill_client(client);
            }
        }
        while let Some(at) = self.sleepers.iter().position(|sleeper| sleeper.wakes_at <= now) {
            let Sleeper { leader, .. } = self.sleepers.swap_remove(at);
            let mut leader = self.lead(leader, |leader, ground| leader.step(ground, false));
            // It has nothing to lead any more; its machine gives up at its deadline.
            if let Some(next) = leader.next_ns().filter(|_| !leader.is_idle()) {
                leader.begin_at = u64::MAX;
                self.sleepers.push(Sleeper { wakes_at: next.max(now + 1), leader });
            }
        }
        if self.start_at.is_some_and(|at| at <= now) {
            self.start_at = None;
            self.start()?;
        }
        Ok(())
    }

    fn begin_end(&mut self, end: End) {
        match end.alone.filter(|shard| (*shard as usize) < self.members.len()) {
            // The leader's process is the control plane's too.
            Some(shard) if shard != 0 => {
                self.tear(end, Some(shard));
                self.members[shard as usize] = None;
                self.world.kill(Actor::Shard(shard), u64::MAX);
                self.tell_of_death(shard);
                self.end_rest = Some((self.world.now + self.rng.between(200_000, 3_000_000), end));
            }
            _ => self.end(end),
        }
    }

    /// Whoever writes is killed in the middle of it.
    fn tear(&mut self, end: End, only: Option<u32>) {
        let Some(operations) = end.torn_after else { return };
        for shard in 0..self.members.len() {
            if only.is_some_and(|only| only as usize != shard) {
                continue;
            }
            if let Some(mut member) = self.members[shard].take_if(|member| member.is_writing()) {
                self.with_member(shard, &mut member, |member, ground| member.tear(operations, ground));
            }
        }
        if only.is_none()
            && !end.leader_sleeps
            && let Some(leader) = self.leader.take()
        {
            self.lead(leader, |leader, ground| leader.tear(operations, ground));
        }
    }

    /// All servers die.
    pub(super) fn end(&mut self, end: End) {
        let now = self.world.now;
        self.tear(end, None);
        if let Some(leader) = self.leader.take().filter(|leader| end.leader_sleeps && !leader.is_idle()) {
            let wakes_at = now + end.for_ns + self.rng.between(50_000, 3_000_000);
            self.sleepers.push(Sleeper { wakes_at, leader });
        }
        self.line.judge(&self.world.history);
        self.members.iter_mut().for_each(|member| *member = None);
        for shard in 0..self.members.len() as u32 {
            if self.world.host_of(Actor::Shard(shard)).is_some() {
                self.world.kill(Actor::Shard(shard), u64::MAX);
            }
        }
        self.world.kill(Actor::Plane, now + end.for_ns);
        if end.power {
            self.lose_power();
        }
        if let Some(bit) = end.damage {
            self.damage(bit);
        }
        let clients = self.world.clients.iter().filter_map(|place| place.process.as_ref());
        self.taken.in_doubt += clients.map(|client| client.under_way() as u64).sum::<u64>();
        self.start_at = Some(now + end.for_ns);
    }

    fn lose_power(&mut self) {
        let (steps, rng) = (self.disk.steps(), &mut self.rng);
        self.disk = self.disk.after_power_cut(steps, &mut || rng.chance(500_000));
        // It was on the machine that has lost its power.
        self.sleepers.clear();
    }

    /// Flips a bit in a file of the newest checkpoint, if there is another one to fall back on.
    fn damage(&mut self, bit: u64) {
        let good = self.truths.exist.iter().rev();
        let good: Vec<u64> = good
            .filter(|epoch| !self.truths.damaged.contains(epoch) && !self.truths.doubtful.contains(epoch))
            .copied()
            .collect();
        let [newest, before, ..] = good[..] else { return };
        let Ok(found) = self.catalog.list(&self.disk) else { return };
        if !found.iter().any(|found| found.epoch == before && matches!(found.manifest, Ok(Some(_)))) {
            return;
        }
        let shards = self.plan.base.shards;
        let name = match bit % (u64::from(shards) + 1) {
            0 => "MANIFEST".to_owned(),
            n => Role::Shard.file_name(n as u32 - 1, shards),
        };
        let path = self.catalog.directory_of(newest).join(name);
        if self.disk.damage(&path, bit / 8) {
            self.truths.damaged.insert(newest);
        }
    }

    /// All servers start, from the newest checkpoint that is whole.
    pub(super) fn start(&mut self) -> Result<()> {
        self.disk.revive();
        let depth = if self.mistaken(Mistake::RestoreNotVerified) { Depth::Outline } else { Depth::Whole };
        let choice = self.catalog.choose(&self.disk, Some(Deployment::job()), None, depth)?;
        self.judge_choice(choice.manifest.as_ref().map(|manifest| manifest.epoch));
        if choice.manifest.is_some() && !self.mistaken(Mistake::ZombieLeaderNotFenced) {
            self.catalog.fence(&self.disk, u128::from(self.rng.word()))?;
        }
        let epoch = choice.manifest.as_ref().map_or(0, |manifest| manifest.epoch);
        self.taken.restored += u64::from(epoch != 0);
        let refuses = !self.plan.resume && epoch != 0;
        let (number, before) = (self.line.number + 1, self.world.history.count());
        self.line = Line::new(number, epoch, before, refuses);
        for shard in 0..self.members.len() {
            self.world.start_shard(shard)?;
            self.fill(shard, choice.manifest.as_ref());
            self.members[shard] = Some(Member::new());
        }
        let begin_at = self.world.now + self.plan.every_ns;
        self.leader = Some(Leader::new(self.plan.base.shards, number, choice.damaged, begin_at));
        self.send_survivors_away(refuses);
        Ok(())
    }

    fn fill(&mut self, shard: usize, manifest: Option<&Manifest>) {
        let first = self.rng.word() >> 1 | Window::LASTING;
        let older = self.mistaken(Mistake::OneShardRestoresAnother) && shard + 1 == self.members.len() && shard > 0;
        let other = manifest.filter(|_| older).and_then(|manifest| self.older_than(manifest.epoch));
        let restored = other.as_ref().or(manifest).and_then(|manifest| {
            let member = manifest.members.iter().find(|member| member.rank as usize == shard)?;
            Some(open_member(&self.disk, &self.catalog, manifest, member).and_then(|container| read(&container)))
        });
        let Some(place) = self.world.shards.get_mut(shard) else { return };
        let Some(process) = place.process.as_mut() else { return };
        process.next_window = first;
        let ledger = Arc::clone(&self.world.common.ledgers[shard]);
        let Some(manifest) = manifest else {
            self.line.began.push((ledger, Default::default()));
            return;
        };
        let (mut state, saved) = match restored {
            Some(Ok(restored)) => restored,
            Some(Err(error)) => {
                let what = format!("shard {shard} cannot be filled from the checkpoint that was chosen: {error}");
                return self.world.history.violation(what);
            }
            None => return self.world.history.violation(format!("checkpoint {} lacks shard {shard}", manifest.epoch)),
        };
        ledger.fill(state.image.clone());
        self.line.began.push((Arc::clone(&ledger), state.image.clone()));
        process.refuses_survivors = !self.plan.resume && self.plan.mistake != Some(Mistake::ZombieClientLetIn);
        if self.plan.resume {
            let with_entries = self.plan.mistake != Some(Mistake::WindowsNotRestored);
            let at = Tick(self.world.now + place.skew);
            for SavedWindow { client, incarnation, window } in saved {
                let window =
                    if with_entries { window } else { Arc::new(Window::new(window.number(), window.export().0)) };
                let mut guest = Guest::of(window);
                guest.gone = Some(at);
                process.guests.insert((client, incarnation), guest);
            }
        }
        state.image = ledger.image();
        for (key, version) in &state.image.versions {
            self.world.common.acknowledged.insert(*key, *version);
        }
        self.judge_state(manifest.epoch, shard as u32, &state);
    }

    fn older_than(&self, epoch: u64) -> Option<Manifest> {
        let found = self.catalog.list(&self.disk).ok()?;
        found.into_iter().filter(|found| found.epoch < epoch).find_map(|found| found.manifest.ok().flatten())
    }

    /// Clients of the world before must open again: somebody ends them, sooner or later.
    fn send_survivors_away(&mut self, refuses: bool) {
        if !refuses {
            return;
        }
        let living: BTreeSet<(u32, u32)> = (0_u32..)
            .zip(&self.world.clients)
            // One that was not let in yet has seen nothing that is undone.
            .filter_map(|(number, place)| {
                Some((number, place.process.as_ref().filter(|p| p.ps().is_some())?.fabric.host()))
            })
            .collect();
        for (client, host) in living {
            self.line.survivors.insert(client, host);
            let at = self.world.now + self.rng.between(200_000, 8_000_000);
            self.client_ends.push((at, client));
        }
    }
}
