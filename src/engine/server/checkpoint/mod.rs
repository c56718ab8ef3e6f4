//! Checkpoints of a parameter server's shards: one thread in each copies and writes, one in shard 0 leads.

mod contents;
mod hold;
mod lead;
mod letters;
mod member;
mod restore;
mod windows;

pub(super) use hold::Hold;
pub(super) use lead::Lead;
pub(super) use letters::{Item, Letters};
pub(super) use member::Member;
pub(super) use restore::{Restored, refuse_lone_restart, restore, supersedes};

use crate::checkpoint::Catalog;
use crate::checkpoint::cut::Message;
use crate::control::{ControlClient, Peer};
use crate::error::{Error, Result, Status};
use crate::ids::ShardId;
use crate::options::Settings;
use crate::sync::Arc;
use core::time::Duration;

/// How long a letter may take. Nothing waits for it but the checkpoint.
const MAIL_TIMEOUT: Duration = Duration::from_secs(1);

/// The shard that leads.
pub(super) const LEADER: ShardId = ShardId(0);

/// Where the deployment's checkpoints are; None: it has none.
pub(super) fn catalog(settings: &Settings) -> Option<Catalog> {
    let directory = settings.checkpoint_directory.as_str();
    (!directory.is_empty()).then(|| Catalog::new(directory))
}

/// The deployment, as checkpoints know it.
pub(super) fn job(settings: &Settings) -> (u128, String) {
    let name = format!("{}/{}", settings.deployment_id, settings.namespace);
    let hash = *blake3::hash(name.as_bytes()).as_bytes();
    let mut number = [0; 16];
    number.copy_from_slice(&hash[..16]);
    (u128::from_le_bytes(number), name)
}

pub(super) fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(Status::OsError, format!("no random bytes for a checkpoint: {error}")))?;
    Ok(u128::from_le_bytes(bytes))
}

/// Who is told what: the thread next door directly, others by the control plane.
#[derive(Clone, Debug)]
pub(super) struct Post {
    pub(super) me: u32,
    pub(super) control: Arc<ControlClient>,
    /// This process's own threads: the member, and in shard 0 the leader.
    pub(super) member: Arc<Letters>,
    pub(super) leader: Option<Arc<Letters>>,
}

impl Post {
    /// A letter that does not arrive is as one that was not sent: deadlines see to it.
    fn send(&self, to: Peer, message: Message) {
        let own = |letters: &Letters, message| letters.push(Item::Letter(Peer::Server(ShardId(self.me)), message));
        match (to, message, &self.leader) {
            (Peer::Server(shard), message @ Message::Command(..), _) if shard.0 == self.me => own(&self.member, message),
            (Peer::Server(LEADER), message @ Message::Report(..), Some(leader)) => own(leader, message),
            (_, message, _) => {
                let _ = self.control.mail(to, &message.encode(), MAIL_TIMEOUT);
            }
        }
    }
}
