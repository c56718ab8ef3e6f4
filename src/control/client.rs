//! A member's side of the control plane, for threads that block.

use super::codec::{self, proto};
use super::driver::{self, publish_message};
use super::events::Slot;
use super::health::HealthReport;
use super::identity::check_name;
use super::limits::{ANSWER_SLACK, GOODBYE_TIMEOUT, OFFER_BYTES_MAX, WAIT_MAX};
use super::link::{Link, Shared};
use super::overview_codec;
use super::runtime;
use super::types::{Event, Identity, Member, Peer};
use crate::error::{Error, Result, Status};
use crate::ids::ShardId;
use crate::observe::recent::recent;
use crate::sync::{Arc, Ordering, lock};
use crate::time::{self, Tick};
use core::time::Duration;
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Name of the thread that keeps a member in the deployment.
const THREAD_NAME: &str = "reclane-control";

/// A member of the deployment. Any thread may call; one thread takes the events.
///
/// When the control plane is lost, the member keeps trying to come back and tells the new one what it should know:
/// itself, whether it is ready, and what it published. Calls made meanwhile wait for that, until their deadlines.
#[derive(Debug)]
pub struct ControlClient {
    shared: Arc<Shared>,
    me: Peer,
    timeout: Duration,
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlClient {
    /// Joins the deployment whose control plane is at `host` and `port`, and waits up to `timeout` for it to be there.
    /// `timeout` is also the deadline of the calls that have none of their own.
    ///
    /// # Errors
    /// `ControlPlaneUnreachable` naming address, elapsed time and cause; `DeploymentMismatch` naming the option and both
    /// values; `StaleEpoch` for another deployment or epoch; `DuplicateId` naming the holder; `OptionBounds` for a shard
    /// id out of range.
    pub fn join(
        host: &str,
        port: u16,
        timeout: Duration,
        identity: &Identity,
        member: &Member,
    ) -> Result<ControlClient> {
        let started = time::now();
        let timeout = timeout.min(WAIT_MAX);
        let shared = Arc::new(Shared::new(host, port, identity, member)?);
        let runtime = runtime::event_loop(THREAD_NAME)?;
        let handle = runtime.handle().clone();
        let (slot, filler) = Slot::new();
        let (stop, stopped) = oneshot::channel::<()>();
        let inside = shared.clone();
        let thread = crate::thread::start(THREAD_NAME, move || {
            runtime.block_on(async {
                let joined = match inside.join_until(started, started.after(timeout)).await {
                    Ok(joined) => joined,
                    Err(error) => return filler.fill(Err(error)),
                };
                inside.link.send_replace(Link::Up(joined.up.clone()));
                filler.fill(Ok(joined.me));
                tokio::select! {
                    () = driver::keep(&inside, joined) => {}
                    // An error means that the handle is gone: stop as well.
                    _ = stopped => {}
                }
            });
            inside.events.close();
            // Not waiting for a name look-up that hangs; everything else ends here.
            runtime.shutdown_background();
        })?;
        let mut client = ControlClient {
            shared,
            me: Peer::Server(ShardId(0)),
            timeout,
            handle,
            stop: Some(stop),
            thread: Some(thread),
        };
        match slot.wait() {
            Some(Ok(me)) => {
                client.me = me;
                Ok(client)
            }
            Some(Err(error)) => {
                client.end();
                Err(error)
            }
            None => {
                client.end();
                Err(Error::new(Status::Bug, "the control thread ended without a word"))
            }
        }
    }

    /// Who this member is; a client that asked for a number finds it here.
    #[must_use]
    pub fn me(&self) -> Peer {
        self.me
    }

    /// Says that this server serves.
    ///
    /// # Errors
    /// `WrongState` on a client; `Draining` after [`draining`](Self::draining); `ControlPlaneUnreachable`.
    pub fn ready(&self) -> Result<()> {
        self.call(self.timeout, |mut stub, session, _| async move {
            stub.ready(proto::ReadyRequest { session: Some(session) }).await
        })?;
        lock(&self.shared.view).set_ready();
        Ok(())
    }

    /// Says that this server is about to leave. It cannot become ready again.
    ///
    /// # Errors
    /// `WrongState` on a client or a server that was never ready; `ControlPlaneUnreachable`, no later than `timeout`.
    pub fn draining(&self, timeout: Duration) -> Result<()> {
        self.call_within(timeout, Duration::ZERO, |mut stub, session, _| async move {
            stub.draining(proto::DrainingRequest { session: Some(session) }).await
        })?;
        lock(&self.shared.view).set_draining();
        Ok(())
    }

    /// Waits until every shard is ready.
    ///
    /// # Errors
    /// `StartupTimeout` naming the missing shards; `Draining` at once when a shard is about to leave;
    /// `ControlPlaneUnreachable`.
    pub fn wait_servers_ready(&self, timeout: Duration) -> Result<()> {
        self.call(timeout, |mut stub, session, left| async move {
            let timeout_ms = codec::timeout_ms(left);
            stub.wait_servers_ready(proto::WaitServersReadyRequest { session: Some(session), timeout_ms }).await
        })
        .map(drop)
    }

    /// Waits until one shard is ready.
    ///
    /// # Errors
    /// As [`wait_servers_ready`](Self::wait_servers_ready); `InvalidArgument` when there is no such shard.
    pub fn wait_server_ready(&self, shard: ShardId, timeout: Duration) -> Result<()> {
        self.call(timeout, move |mut stub, session, left| async move {
            let timeout_ms = codec::timeout_ms(left);
            let request = proto::WaitServerRequest { session: Some(session), server: shard.0, timeout_ms };
            stub.wait_server(request).await
        })
        .map(drop)
        .map_err(|error| error.at_shard(shard.0))
    }

    /// Stores what `to` needs to connect lanes with this member; a later offer takes its place. It is kept while this
    /// member and `to` live, and told again to a control plane that was restarted, even after an error of reach.
    ///
    /// # Errors
    /// `InvalidArgument` for an offer that is too large or a shard that does not exist; `ResourceLimit`;
    /// `ControlPlaneUnreachable`.
    pub fn publish_lanes(&self, to: Peer, offer: Vec<u8>) -> Result<()> {
        self.publish_lanes_within(to, offer, self.timeout)
    }

    /// [`publish_lanes`](Self::publish_lanes) with a deadline of its own.
    ///
    /// # Errors
    /// As there.
    pub fn publish_lanes_within(&self, to: Peer, offer: Vec<u8>, timeout: Duration) -> Result<()> {
        if offer.len() > OFFER_BYTES_MAX {
            let message =
                format!("the lane offer for {to} has {} bytes; at most {OFFER_BYTES_MAX} are allowed", offer.len());
            return Err(Error::new(Status::InvalidArgument, message));
        }
        let offer = lock(&self.shared.view).offer(to, offer.into());
        let version = offer.version;
        let outcome = self.call(timeout, move |mut stub, session, _| {
            let request = publish_message(&session, to, &offer);
            async move { stub.publish_lanes(request).await }
        });
        match outcome {
            Ok(reply) => {
                let receiver = codec::optional_incarnation(&reply.receiver).unwrap_or(None);
                lock(&self.shared.view).offered(to, version, receiver);
                Ok(())
            }
            Err(error) => {
                if error.status != Status::ControlPlaneUnreachable {
                    lock(&self.shared.view).unoffer(to, version);
                }
                Err(error)
            }
        }
    }

    /// What `from` published for this member; waits until it has.
    ///
    /// # Errors
    /// `StartupTimeout` saying what `from` has not done; `Draining` when it is about to leave; `InvalidArgument` when
    /// there is no such shard; `ControlPlaneUnreachable`.
    pub fn get_lanes(&self, from: Peer, timeout: Duration) -> Result<Vec<u8>> {
        self.call(timeout, move |mut stub, session, left| async move {
            let timeout_ms = codec::timeout_ms(left);
            let from = Some(codec::peer_message(from));
            stub.get_lanes(proto::GetLanesRequest { session: Some(session), from, timeout_ms }).await
        })
        .map(|reply| reply.offer)
        .map_err(|error| match from {
            Peer::Server(shard) => error.at_shard(shard.0),
            Peer::Client(_) => error,
        })
    }

    /// Waits until `participants` different members, this one included, have come to the barrier of this name.
    ///
    /// # Errors
    /// `ShardUnreachable` naming the participant that died or left while it waited; `StartupTimeout` naming those who
    /// came; `InvalidArgument` for an empty barrier or one that others began with another count;
    /// `ControlPlaneUnreachable`.
    pub fn barrier(&self, name: &str, participants: u32, timeout: Duration) -> Result<()> {
        check_name("the barrier's name", name).map_err(|refusal| refusal.into_error())?;
        let name = name.to_string();
        // Relaxed: only the number itself matters.
        let call = self.shared.next_call.fetch_add(1, Ordering::Relaxed);
        self.call(timeout, move |mut stub, session, left| {
            let timeout_ms = codec::timeout_ms(left);
            let request =
                proto::BarrierRequest { session: Some(session), name: name.clone(), participants, timeout_ms, call };
            async move { stub.barrier(request).await }
        })
        .map(drop)
    }

    /// Hands a letter to another member. It arrives once, or not at all: whoever writes has a deadline of its own. Whether
    /// the receiver is here.
    ///
    /// # Errors
    /// `InvalidArgument` for a letter that is too large, a shard that does not exist, or one from client to client;
    /// `ControlPlaneUnreachable`.
    pub fn mail(&self, to: Peer, body: &[u8], timeout: Duration) -> Result<bool> {
        let body = body.to_vec();
        self.call(timeout, move |mut stub, session, _| {
            let request =
                proto::MailRequest { session: Some(session), to: Some(codec::peer_message(to)), body: body.clone() };
            async move { stub.mail(request).await }
        })
        .map(|reply| !reply.receiver.is_empty())
    }

    /// Asks the control plane whether it is there.
    ///
    /// # Errors
    /// `ControlPlaneUnreachable`.
    pub fn probe(&self, timeout: Duration) -> Result<()> {
        self.call(timeout, |mut stub, _, _| async move { stub.probe(proto::ProbeRequest {}).await }).map(drop)
    }

    /// What the control plane knows of a shard's health.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such shard; `ControlPlaneUnreachable`, which is no verdict on the shard.
    pub fn server_health(&self, shard: ShardId, timeout: Duration) -> Result<HealthReport> {
        self.call(timeout, move |mut stub, session, _| async move {
            let request = proto::GetServerHealthRequest { session: Some(session), server: shard.0 };
            stub.get_server_health(request).await
        })
        .map(|reply| codec::health_report(&reply))
        .map_err(|error| error.at_shard(shard.0))
    }

    /// Tells the control plane this member's numbers, and the last events of this process, for those who look at the
    /// deployment.
    ///
    /// # Errors
    /// `InvalidArgument` for too many; `ControlPlaneUnreachable`.
    pub fn report(&self, figures: &[(String, u64)], timeout: Duration) -> Result<()> {
        let figures = overview_codec::figures_message(figures);
        let events = overview_codec::occurrences(&recent());
        self.call(timeout, move |mut stub, session, _| {
            let request =
                proto::ReportRequest { session: Some(session), figures: figures.clone(), events: events.clone() };
            async move { stub.report(request).await }
        })
        .map(drop)
    }

    /// From now on, this server reports this often that it lives.
    pub fn beat_every(&self, interval: Duration) {
        // The receiver is the control thread, which lives as long as we do.
        self.shared.beat.send_replace(Some(interval));
    }

    /// The next event; none when the time is up, after [`wake`](Self::wake), and after the end.
    #[must_use]
    pub fn next_event(&self, timeout: Duration) -> Option<Event> {
        self.shared.events.next(timeout)
    }

    /// Lets a [`next_event`](Self::next_event) that waits, or else the next one that finds no event, return at once.
    pub fn wake(&self) {
        self.shared.events.wake();
    }

    /// Says goodbye, so that the others see a member that left and not one that died, and ends the thread. Dropping does
    /// the same.
    pub fn leave(self) {
        drop(self);
    }

    /// [`leave`](Self::leave), with no more than this time for the goodbye. Without it the others see a member that died.
    pub fn leave_within(mut self, timeout: Duration) {
        self.say_goodbye(timeout.min(GOODBYE_TIMEOUT));
        self.end();
    }

    /// This member is about to leave: calls that wait for others end at once with `Closed`, and so do later ones.
    pub fn give_up(&self) {
        self.shared.given_up.send_replace(true);
    }

    fn call<T, F>(
        &self,
        timeout: Duration,
        rpc: impl Fn(proto::control_client::ControlClient<tonic::transport::Channel>, proto::Session, Duration) -> F
        + Send
        + Sync
        + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = core::result::Result<tonic::Response<T>, tonic::Status>> + Send,
    {
        self.call_within(timeout, ANSWER_SLACK, rpc)
    }

    fn call_within<T, F>(
        &self,
        timeout: Duration,
        slack: Duration,
        rpc: impl Fn(proto::control_client::ControlClient<tonic::transport::Channel>, proto::Session, Duration) -> F
        + Send
        + Sync
        + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = core::result::Result<tonic::Response<T>, tonic::Status>> + Send,
    {
        let deadline: Tick = time::now().after(timeout.min(WAIT_MAX));
        let shared = self.shared.clone();
        let (slot, filler) = Slot::new();
        self.handle.spawn(async move {
            let mut given_up = shared.given_up.subscribe();
            tokio::select! {
                answer = shared.call(deadline, slack, rpc) => filler.fill(answer),
                // The sender lives as long as `shared`.
                _ = given_up.wait_for(|over| *over) => {}
            }
        });
        slot.wait().unwrap_or_else(|| Err(Error::new(Status::Closed, "this member has left the deployment")))
    }

    /// One attempt: when it fails, the stream breaks in a moment and the others see a death instead.
    fn say_goodbye(&self, timeout: Duration) {
        // Relaxed: only a hint for the control thread.
        self.shared.leaving.store(true, Ordering::Relaxed);
        let Link::Up(mut up) = self.shared.link.borrow().clone() else { return };
        let (slot, filler) = Slot::new();
        self.handle.spawn(async move {
            let goodbye = up.stub.leave(proto::LeaveRequest { session: Some(up.session) });
            filler.fill(tokio::time::timeout(timeout, goodbye).await.is_ok_and(|answer| answer.is_ok()));
        });
        if slot.wait() != Some(true) {
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::CONTROL_GOODBYE_FAILED,
                address = self.shared.address
            );
        }
    }

    /// Ends the thread and waits for it.
    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::CONTROL_THREAD_PANICKED,
                address = self.shared.address
            );
        }
    }

    /// Goes without a word, as a killed process does.
    #[cfg(test)]
    pub(crate) fn vanish(mut self) {
        self.end();
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.say_goodbye(GOODBYE_TIMEOUT);
            self.end();
        }
    }
}
