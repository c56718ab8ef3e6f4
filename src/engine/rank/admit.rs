//! Letting peers' lanes in: the side that is written to.
//!
//! A connection has memory of its own, fresh each time: a mark or a request that a former connection brings late lands
//! where nobody looks any more. When a peer asks anew, its former connection is ended first and its evidence read after.

use super::board::Other;
use super::core::Shared;
use crate::control::ControlClient;
use crate::error::{Error, Result, Status};
use crate::fabric::{Access, Fabric, Qp, QpConfig, QpState, Region, RegionAddress};
use crate::ids::Incarnation;
use crate::memory::{Answer, Ask, Mailbox, Purpose, evidence};
use crate::sync::{Arc, Mutex, Ordering, lock};
use crate::time::now;
use core::time::Duration;

/// How long connecting to one peer's ask may take; other peers are not held up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a data connection's own memory: the place for marks.
const MARK_BYTES: usize = 4096;

/// A lane that was let in.
#[derive(Debug)]
pub(super) struct Guest<F: Fabric> {
    pub(super) peer: u32,
    pub(super) purpose: Purpose,
    incarnation: Incarnation,
    pub(super) qp: Arc<F::Qp>,
    memory: Memory<F>,
}

#[derive(Debug)]
enum Memory<F: Fabric> {
    Mark(F::Region),
    Cells(Arc<Mutex<Mailbox<F>>>),
}

impl<F: Fabric> Shared<F> {
    /// A peer has told something new: reads it, and lets in what it asks for. One thread per peer; what comes meanwhile is
    /// read in another round.
    pub(super) fn attend(self: &Arc<Self>, control: &ControlClient, other: &Other<F>) {
        loop {
            if let Err(error) = self.attend_once(control, other) {
                crate::event!(
                    crate::observe::Level::WARN,
                    crate::observe::events::RANK_NOT_ADMITTED,
                    rank = self.rank,
                    peer = other.number,
                    error = %error
                );
            }
            let mut words = other.words();
            if !core::mem::take(&mut words.again) {
                words.working = false;
                return;
            }
        }
    }

    fn attend_once(self: &Arc<Self>, control: &ControlClient, other: &Other<F>) -> Result<()> {
        self.refresh(control, other, CONNECT_TIMEOUT)?;
        let (asks, incarnation) = {
            let words = other.words();
            let Some(notice) = &words.theirs else { return Ok(()) };
            let answered = |ask: &Ask| {
                words.answers.iter().any(|a| {
                    a.purpose == ask.purpose && a.generation == ask.generation && a.answers == notice.incarnation
                })
            };
            let asks: Vec<Ask> = notice.asks.iter().filter(|ask| !answered(ask)).cloned().collect();
            (asks, notice.incarnation)
        };
        // Relaxed: an ask that comes while this rank closes may go either way.
        if asks.is_empty() || self.closing.load(Ordering::Relaxed) || self.asleep.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut failure = Ok(());
        for ask in asks {
            match self.admit(other, &ask, incarnation) {
                Ok(answer) => {
                    let mut words = other.words();
                    words.answers.retain(|a| a.purpose != answer.purpose);
                    words.answers.push(answer);
                }
                Err(error) => failure = Err(error),
            }
        }
        self.publish(control, other, CONNECT_TIMEOUT)?;
        failure
    }

    fn admit(self: &Arc<Self>, other: &Other<F>, ask: &Ask, incarnation: Incarnation) -> Result<Answer> {
        let proved = self.end_former(other.number, ask.purpose, incarnation);
        let (memory, cells, waker) = match ask.purpose {
            Purpose::Data => {
                let mark = self.fabric.allocate(MARK_BYTES, Access::ALL)?;
                (Memory::Mark(mark.clone()), mark, None)
            }
            Purpose::Atomics => {
                self.start_serving()?;
                let mailbox = Mailbox::new(&self.fabric, incarnation)?;
                let cells = mailbox.memory().clone();
                (Memory::Cells(Arc::new(Mutex::new(mailbox))), cells, lock(&self.waker).clone())
            }
        };
        let address: RegionAddress = cells.address();
        let config = QpConfig { max_send_wr: 4, max_recv_wr: 1, max_send_sge: 0, generation: ask.generation };
        let cq = lock(&self.guest_cq).clone();
        let cq = cq.ok_or_else(|| Error::new(Status::WrongState, "this rank is suspended"))?;
        let qp = {
            // Under this lock a region that is being opened is either here, or exposed by its opener to what is here.
            let mut guests = lock(&self.guests);
            let mut exposed = vec![cells];
            if ask.purpose == Purpose::Data {
                exposed.push(self.home.table().clone());
                exposed.extend(self.home.memory());
            }
            let qp = Arc::new(self.fabric.create_qp(&config, &exposed, &cq, &cq, waker.as_ref())?);
            guests.push(Guest { peer: other.number, purpose: ask.purpose, incarnation, qp: Arc::clone(&qp), memory });
            qp
        };
        if let Err(error) = qp.connect(&ask.queue_pair, now().after(CONNECT_TIMEOUT).remaining()) {
            self.dismiss(other.number, Some(incarnation));
            return Err(error.at_shard(other.number));
        }
        self.index_mailboxes();
        Ok(Answer {
            purpose: ask.purpose,
            generation: ask.generation,
            answers: incarnation,
            evidence: proved,
            queue_pair: qp.address(),
            cells: address,
        })
    }

    /// Ends the peer's former connection for this purpose. Its evidence, if it was of the same life.
    fn end_former(&self, peer: u32, purpose: Purpose, incarnation: Incarnation) -> u64 {
        let former: Vec<Guest<F>> = {
            let mut guests = lock(&self.guests);
            let all = core::mem::take(&mut *guests);
            let (former, kept) = all.into_iter().partition(|guest| guest.peer == peer && guest.purpose == purpose);
            *guests = kept;
            former
        };
        let mut proved = 0;
        for guest in former {
            // From ERR on nothing of it is executed any more. It cannot fail.
            let _ = guest.qp.modify(QpState::Err);
            if let Memory::Mark(cells) = &guest.memory
                && guest.incarnation == incarnation
            {
                proved = proved.max(evidence(cells).unwrap_or(0));
            }
        }
        self.index_mailboxes();
        proved
    }

    /// Ends all lanes of a peer, or those of one life of it.
    pub(super) fn dismiss(&self, peer: u32, incarnation: Option<Incarnation>) {
        let mut ended = Vec::new();
        lock(&self.guests).retain(|guest| {
            let goes = guest.peer == peer && incarnation.is_none_or(|life| life == guest.incarnation);
            if goes {
                ended.push(Arc::clone(&guest.qp));
            }
            !goes
        });
        for qp in ended {
            // It cannot fail.
            let _ = qp.modify(QpState::Err);
        }
        self.index_mailboxes();
    }

    /// The mailboxes that are to be looked at.
    fn index_mailboxes(&self) {
        let guests = lock(&self.guests);
        let cells = guests.iter().filter_map(|guest| match &guest.memory {
            Memory::Cells(mailbox) => Some(Arc::clone(mailbox)),
            Memory::Mark(_) => None,
        });
        *lock(&self.mailboxes) = cells.collect();
    }

    /// The queue pairs through which peers reach regions.
    pub(super) fn data_guests(&self) -> Vec<(u32, Arc<F::Qp>)> {
        let guests = lock(&self.guests);
        guests.iter().filter(|g| g.purpose == Purpose::Data).map(|g| (g.peer, Arc::clone(&g.qp))).collect()
    }
}
