//! A request that finds no slot.

use super::PsClient;
use super::record::Record;
use super::tally::fault;
use super::words::no_slot;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::rpc::{AcquireError, Channel, Held};
use crate::time::{now, pause};
use core::time::Duration;

/// Between two looks for slots that are on their way.
const LOOK: Duration = Duration::from_micros(50);

impl<F: Fabric> PsClient<F> {
    #[cold]
    pub(super) fn take_late(&self, channel: &Channel<F, Record>, error: AcquireError) -> Result<Held> {
        let acquired = match error {
            AcquireError::NoSlot => {
                self.count_fault(channel.shard(), fault::NO_SLOT);
                self.help_batches();
                channel.acquire()
            }
            other => Err(other),
        };
        match acquired {
            Err(AcquireError::Soon) => self.take_soon(channel),
            other => other,
        }
        .map_err(|error| match error {
            AcquireError::NoSlot | AcquireError::Soon => no_slot(channel),
            AcquireError::Down(error) => error,
        })
    }

    /// Slots that no request holds are on their way: waits for one of these, or any other.
    #[cold]
    fn take_soon(&self, channel: &Channel<F, Record>) -> core::result::Result<Held, AcquireError> {
        let deadline = now().after(self.options.growth);
        let mut is_over = false;
        loop {
            match channel.acquire() {
                Err(AcquireError::Soon) if now() < deadline => {
                    is_over = false;
                    self.help_batches();
                    pause(LOOK);
                }
                // What was on its way has come since the look: once more.
                Err(AcquireError::NoSlot) if !is_over => is_over = true,
                other => return other,
            }
        }
    }
}
