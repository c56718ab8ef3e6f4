//! Checkpoints of a parameter server's shards: one thread in each copies and writes, one in shard 0 leads.

mod contents;
mod filing;
mod fill;
mod hold;
mod lead;
mod letters;
mod member;
mod restore;
mod tally;
pub(crate) mod windows;

pub(in crate::engine) use filing::Filing;
pub(in crate::engine) use fill::Filler;
pub(super) use hold::Hold;
pub(in crate::engine) use lead::Lead;
pub(in crate::engine) use letters::{Item, Letters};
pub(super) use member::Member;
pub(in crate::engine) use restore::choose;
pub(super) use restore::{refuse_lone_restart, restore, supersedes};
pub(in crate::engine) use tally::Tally;
pub(super) use windows::SavedWindow;

use crate::checkpoint::Catalog;
use crate::checkpoint::cut::{Message, Note, State};
use crate::control::{ControlClient, Peer};
use crate::engine::client::checkpoint::Notes;
use crate::error::{Error, Result, Status};
use crate::ids::ShardId;
use crate::options::Settings;
use crate::sync::Arc;
use core::time::Duration;

/// How long a letter may take. Nothing waits for it but the checkpoint.
const MAIL_TIMEOUT: Duration = Duration::from_secs(1);

/// The shard that leads.
pub(in crate::engine) const LEADER: ShardId = ShardId(0);

/// Where the deployment's checkpoints are; None: it has none.
pub(in crate::engine) fn catalog(settings: &Settings) -> Option<Catalog> {
    let directory = settings.checkpoint_directory.as_str();
    (!directory.is_empty()).then(|| Catalog::new(directory))
}

/// The deployment, as checkpoints know it.
pub(in crate::engine) fn job(settings: &Settings) -> (u128, String) {
    let name = format!("{}/{}", settings.deployment_id, settings.namespace);
    let hash = *blake3::hash(name.as_bytes()).as_bytes();
    let mut number = [0; 16];
    number.copy_from_slice(&hash[..16]);
    (u128::from_le_bytes(number), name)
}

pub(in crate::engine) fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(Status::OsError, format!("no random bytes for a checkpoint: {error}")))?;
    Ok(u128::from_le_bytes(bytes))
}

/// Who is told what: the thread next door directly, others by the control plane.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Post {
    pub(super) me: u32,
    pub(super) control: Arc<ControlClient>,
    /// This process's own threads: the member, and in shard 0 the leader.
    pub(in crate::engine) member: Arc<Letters>,
    pub(super) leader: Option<Arc<Letters>>,
    /// What this process was told of those that it asked for; a shard asks for none.
    notes: Option<Arc<Notes>>,
}

impl Post {
    pub(in crate::engine) fn new(settings: &Settings, control: &Arc<ControlClient>) -> Post {
        let leads = settings.shard_id == LEADER.0 && catalog(settings).is_some();
        let leader = leads.then(Arc::default);
        Post { me: settings.shard_id, control: Arc::clone(control), member: Arc::default(), leader, notes: None }
    }

    /// Of a process that asks for checkpoints itself.
    pub(in crate::engine) fn with_notes(mut self, notes: Arc<Notes>) -> Post {
        self.notes = Some(notes);
        self
    }

    /// The threads end.
    pub(in crate::engine) fn close(&self) {
        self.member.close();
        self.leader.iter().for_each(|leader| leader.close());
    }

    /// A letter has arrived.
    pub(in crate::engine) fn deliver(&self, from: Peer, body: &[u8]) {
        match (Message::decode(body), &self.leader) {
            (Some(message @ Message::Command(..)), _) => self.member.push(Item::Letter(from, message)),
            (Some(message), Some(leader)) if is_for_leader(&message) => {
                leader.push(Item::Letter(from, message));
            }
            (Some(Message::Note(note)), _) => self.notes.iter().for_each(|notes| notes.take(note.clone())),
            (Some(Message::Ask(request) | Message::Together(request)), None) => {
                let why = "the leader has no checkpoint-directory".to_owned();
                let (number, epoch, state) = (request.number, 0, State::Aborted);
                let (hold_ns, total_ns, state_bytes, written_bytes) = (0, 0, 0, 0);
                let note = Note { number, epoch, state, hold_ns, total_ns, state_bytes, written_bytes, why };
                self.send(from, Message::Note(note));
            }
            // What is none of these is of another version, or damaged; a letter may be lost.
            _ => {}
        }
    }

    /// A shard's process is gone.
    pub(in crate::engine) fn left(&self, shard: ShardId) {
        self.leader.iter().for_each(|leader| leader.push(Item::Left(shard.0)));
    }

    /// The leader cannot be reached any more: the member need not hold for it.
    pub(in crate::engine) fn leader_lost(&self) {
        self.member.push(Item::Left(LEADER.0));
    }

    /// A letter that does not arrive is as one that was not sent: deadlines see to it.
    pub(in crate::engine) fn send(&self, to: Peer, message: Message) {
        let own = |letters: &Letters, message| letters.push(Item::Letter(Peer::Server(ShardId(self.me)), message));
        match (to, message, &self.leader) {
            (Peer::Server(shard), message @ Message::Command(..), _) if shard.0 == self.me => {
                own(&self.member, message)
            }
            (Peer::Server(LEADER), message, Some(leader)) if is_for_leader(&message) => own(leader, message),
            (Peer::Server(shard), Message::Note(note), _) if shard.0 == self.me => {
                self.notes.iter().for_each(|notes| notes.take(note.clone()));
            }
            (_, message, _) => {
                let _ = self.control.mail(to, &message.encode(), MAIL_TIMEOUT);
            }
        }
    }
}

fn is_for_leader(message: &Message) -> bool {
    matches!(message, Message::Report(..) | Message::Ask(_) | Message::Together(_) | Message::Stop(_))
}
