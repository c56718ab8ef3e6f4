//! Connecting a lane to a peer, when it is first used and after it has failed.

use super::board::{Other, gone};
use super::core::Shared;
use crate::control::ControlClient;
use crate::error::{Error, Outcome, Result, Status};
use crate::fabric::{Access, Fabric, Qp, QpAddress, QpConfig};
use crate::ids::ShardId;
use crate::memory::{Answer, Ask, Line, PageOfPeer, Purpose, SCRATCH_STRIDE};
use crate::sync::{Arc, Ordering, lock};
use crate::time::{Tick, now};
use core::time::Duration;

impl<F: Fabric> Shared<F> {
    /// Connects, unless another thread has just done so.
    ///
    /// # Errors
    /// `ShardUnreachable` when the peer is gone or does not answer; `Closed`; CONTEXT statuses. Nothing was executed.
    pub(super) fn connect(
        &self,
        control: &ControlClient,
        other: &Other<F>,
        purpose: Purpose,
        deadline: Tick,
    ) -> Result<()> {
        let _turn = lock(&other.connecting);
        self.check_awake()?;
        if other.lane(purpose).is_connected() {
            return Ok(());
        }
        // Believed only if the control plane does not know better: it may be lost, too.
        if other.lane(purpose).was_ended() {
            other.words().gone.get_or_insert_with(|| "its process is gone, or has closed its lanes".to_owned());
        }
        self.check_gone(control, other)?;
        let generation = {
            let mut words = other.words();
            let count = &mut words.generations[purpose as usize];
            *count += 1;
            *count
        };
        let cq = self.fabric.create_cq(self.settings.max_send_wr)?;
        let config = QpConfig { max_send_wr: self.settings.max_send_wr, max_recv_wr: 1, max_send_sge: 0, generation };
        let qp = self.fabric.create_qp(&config, &[], &cq, &cq, None)?;
        let asked = self.ask(control, other, purpose, (generation, qp.address()), deadline);
        let answer = asked.inspect_err(|_| {
            other.words().asks.retain(|ask| ask.purpose != purpose);
        })?;
        qp.connect(&answer.queue_pair, deadline.remaining()).map_err(|mut error| {
            error.message = format!("rank {}: {}", other.number, error.message);
            error.outcome = Outcome::NotExecuted;
            error.at_shard(other.number)
        })?;
        let line = self.line(other, (qp, cq), generation, &answer)?;
        other.lane(purpose).attach(line, answer.evidence);
        Ok(())
    }

    /// Refuses a peer whose process is gone, unless another one has taken its place.
    fn check_gone(&self, control: &ControlClient, other: &Other<F>) -> Result<()> {
        let Some(why) = other.words().gone.clone() else { return Ok(()) };
        // The plane forgot the old process before it told of its end: who is ready now is another one.
        if control.wait_server_ready(ShardId(other.number), Duration::ZERO).is_err() {
            return Err(gone(other.number, &why));
        }
        self.arrived(other);
        Ok(())
    }

    fn line(
        &self,
        other: &Other<F>,
        (qp, cq): (F::Qp, Arc<F::Cq>),
        generation: u32,
        answer: &Answer,
    ) -> Result<Line<F>> {
        let scratch = self.fabric.allocate(self.places * SCRATCH_STRIDE, Access::LOCAL)?;
        let (table, regions) = {
            let words = other.words();
            let known = words.theirs.as_ref();
            let table = known.and_then(|n| n.table.map(|table| (table.0, n.incarnation, n.epoch)));
            (table, known.map(|n| n.regions.clone()).unwrap_or_default())
        };
        other.data.told(&regions);
        let page = table.and_then(|(at, incarnation, epoch)| PageOfPeer::find(&qp, at, incarnation, epoch));
        let synchronous = self.load_store;
        let marks = answer.purpose == Purpose::Data && !synchronous;
        Ok(Line { qp, cq, scratch, generation, cells: answer.cells, page, marks, synchronous })
    }

    /// Asks the peer for a lane and waits for its answer.
    fn ask(
        &self,
        control: &ControlClient,
        other: &Other<F>,
        purpose: Purpose,
        (generation, queue_pair): (u32, QpAddress),
        deadline: Tick,
    ) -> Result<Answer> {
        {
            let mut words = other.words();
            words.asks.retain(|ask| ask.purpose != purpose);
            words.asks.push(Ask { purpose, generation, queue_pair });
        }
        self.publish(control, other, deadline.remaining())?;
        let mut words = other.words();
        loop {
            let answer = words.theirs.as_ref().and_then(|notice| {
                let ours =
                    |a: &&Answer| a.purpose == purpose && a.generation == generation && a.answers == self.incarnation;
                notice.answers.iter().find(ours).cloned()
            });
            if let Some(answer) = answer {
                return Ok(answer);
            }
            if let Some(why) = &words.gone {
                return Err(gone(other.number, why));
            }
            // Relaxed: whoever closes wakes the waiters after its store, under the lock that this thread holds.
            if self.closing.load(Ordering::Relaxed) {
                return Err(Error::new(Status::Closed, "this rank was closed"));
            }
            if deadline <= now() {
                let why = match &words.theirs {
                    Some(_) => "it did not let this rank's lane in within the time; is it stopped?",
                    None => "it has not joined, or does not answer, within the time",
                };
                let mut error = Error::new(Status::ShardUnreachable, format!("rank {}: {why}", other.number));
                error.outcome = Outcome::NotExecuted;
                return Err(error.at_shard(other.number));
            }
            words = other.wait(words, deadline);
        }
    }
}
