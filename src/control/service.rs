//! The gRPC face of the control plane: translates, and waits for the hub. No decision is made here.

use super::codec::{self, proto};
use super::hub::{Hub, Reply, Watched};
use super::limits::{FRAME_BYTES_MAX, WAIT_MAX};
use super::messages::{Answer, Ask, Input};
use super::overview_codec;
use super::refusal::{Reason, Refusal};
use crate::error::Status;
use crate::ids::{Incarnation, ShardId};
use crate::sync::Arc;
use crate::time::{self, Tick};
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use proto::control_server::{Control, ControlServer};
use tokio_stream::Stream;
use tonic::{Request, Response};

type Call<T> = Result<Response<T>, tonic::Status>;

/// The service on one hub.
#[derive(Debug)]
pub(super) struct Service {
    hub: Arc<Hub>,
    life: Incarnation,
}

impl Service {
    pub(super) fn server(hub: Arc<Hub>, life: Incarnation) -> ControlServer<Service> {
        ControlServer::new(Service { hub, life }).max_decoding_message_size(FRAME_BYTES_MAX)
    }

    async fn ask(&self, session: Option<proto::Session>, ask: Ask, deadline: Tick) -> Result<Answer, tonic::Status> {
        let (session, incarnation) = codec::session(session).map_err(|refusal| codec::refusal_status(&refusal))?;
        let call = self.hub.call(|ticket| Input::Ask { ticket, session, incarnation, ask, deadline });
        settle(call.await).map(|reply| reply.answer)
    }
}

fn settle(reply: Option<Reply>) -> Result<Reply, tonic::Status> {
    match reply {
        Some(Reply { answer: Answer::Refused(refusal), .. }) => Err(codec::refusal_status(&refusal)),
        Some(reply) => Ok(reply),
        None => {
            let message = "the control plane is stopping";
            let refusal = Refusal::new(Status::ControlPlaneUnreachable, Reason::Stopping, message);
            Err(codec::refusal_status(&refusal))
        }
    }
}

fn formed<T>(value: Result<T, Refusal>) -> Result<T, tonic::Status> {
    value.map_err(|refusal| codec::refusal_status(&refusal))
}

/// The deadline of a wait that a peer asks for.
fn deadline(timeout_ms: u64) -> Tick {
    time::now().after(Duration::from_millis(timeout_ms).min(WAIT_MAX))
}

/// A member's stream: who it is, then what changes.
#[derive(Debug)]
pub(super) struct Notices {
    first: Option<proto::JoinReply>,
    watched: Watched,
}

impl Stream for Notices {
    type Item = Result<proto::JoinReply, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.watched.poll_next(cx).map(|notice| notice.map(|notice| Ok(codec::notice_message(notice)))),
        }
    }
}

#[tonic::async_trait]
impl Control for Service {
    type JoinStream = Notices;

    async fn probe(&self, _: Request<proto::ProbeRequest>) -> Call<proto::ProbeReply> {
        Ok(Response::new(proto::ProbeReply { life: codec::incarnation_bytes(self.life) }))
    }

    async fn join(&self, request: Request<proto::JoinRequest>) -> Call<Notices> {
        let from = request.remote_addr();
        let (identity, member, proof) = formed(codec::join(request.into_inner()))?;
        let reply = self.hub.call(|ticket| Input::Join { ticket, identity, member, proof }).await;
        if let Some(Reply { answer: Answer::Refused(refusal), .. }) = &reply
            && refusal.reason == Reason::Token
        {
            // The one refusal that an attack makes too: whoever runs the control plane hears of it.
            let address = from.map_or_else(String::new, |address| address.to_string());
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::CONTROL_JOIN_REFUSED,
                address,
                reason = refusal.message
            );
        }
        let reply = settle(reply)?;
        let (Answer::Joined { session, me }, Some(watched)) = (reply.answer, reply.watched) else {
            return Err(tonic::Status::internal("a join was answered with something else"));
        };
        let joined = proto::Joined {
            session: session.0,
            me: Some(codec::peer_message(me)),
            life: codec::incarnation_bytes(self.life),
        };
        let first = Some(proto::JoinReply { kind: Some(proto::join_reply::Kind::Joined(joined)) });
        Ok(Response::new(Notices { first, watched }))
    }

    async fn leave(&self, request: Request<proto::LeaveRequest>) -> Call<proto::LeaveReply> {
        self.ask(request.into_inner().session, Ask::Leave, time::now()).await?;
        Ok(Response::new(proto::LeaveReply {}))
    }

    async fn publish_lanes(&self, request: Request<proto::PublishLanesRequest>) -> Call<proto::PublishLanesReply> {
        let message = request.into_inner();
        let ask = Ask::Publish {
            to: formed(codec::peer(message.to))?,
            version: message.version,
            for_incarnation: formed(codec::optional_incarnation(&message.for_incarnation))?,
            offer: message.offer,
        };
        let receiver = match self.ask(message.session, ask, time::now()).await? {
            Answer::Published(Some(receiver)) => codec::incarnation_bytes(receiver),
            _ => Vec::new(),
        };
        Ok(Response::new(proto::PublishLanesReply { receiver }))
    }

    async fn get_lanes(&self, request: Request<proto::GetLanesRequest>) -> Call<proto::GetLanesReply> {
        let message = request.into_inner();
        let ask = Ask::Lanes { from: formed(codec::peer(message.from))? };
        match self.ask(message.session, ask, deadline(message.timeout_ms)).await? {
            Answer::Offer(offer) => Ok(Response::new(proto::GetLanesReply { offer })),
            _ => Err(tonic::Status::internal("a request for lanes was answered with something else")),
        }
    }

    async fn ready(&self, request: Request<proto::ReadyRequest>) -> Call<proto::ReadyReply> {
        self.ask(request.into_inner().session, Ask::Ready, time::now()).await?;
        Ok(Response::new(proto::ReadyReply {}))
    }

    async fn draining(&self, request: Request<proto::DrainingRequest>) -> Call<proto::DrainingReply> {
        self.ask(request.into_inner().session, Ask::Draining, time::now()).await?;
        Ok(Response::new(proto::DrainingReply {}))
    }

    async fn wait_servers_ready(
        &self,
        request: Request<proto::WaitServersReadyRequest>,
    ) -> Call<proto::WaitServersReadyReply> {
        let message = request.into_inner();
        self.ask(message.session, Ask::WaitReady(None), deadline(message.timeout_ms)).await?;
        Ok(Response::new(proto::WaitServersReadyReply {}))
    }

    async fn wait_server(&self, request: Request<proto::WaitServerRequest>) -> Call<proto::WaitServerReply> {
        let message = request.into_inner();
        let ask = Ask::WaitReady(Some(ShardId(message.server)));
        self.ask(message.session, ask, deadline(message.timeout_ms)).await?;
        Ok(Response::new(proto::WaitServerReply {}))
    }

    async fn heartbeat(&self, request: Request<proto::HeartbeatRequest>) -> Call<proto::HeartbeatReply> {
        self.ask(request.into_inner().session, Ask::Beat, time::now()).await?;
        Ok(Response::new(proto::HeartbeatReply {}))
    }

    async fn get_server_health(
        &self,
        request: Request<proto::GetServerHealthRequest>,
    ) -> Call<proto::GetServerHealthReply> {
        let message = request.into_inner();
        match self.ask(message.session, Ask::Health(ShardId(message.server)), time::now()).await? {
            Answer::Health(report) => Ok(Response::new(codec::health_message(&report))),
            _ => Err(tonic::Status::internal("a question about health was answered with something else")),
        }
    }

    async fn mail(&self, request: Request<proto::MailRequest>) -> Call<proto::MailReply> {
        let message = request.into_inner();
        let ask = Ask::Mail { to: formed(codec::peer(message.to))?, body: message.body.into() };
        let receiver = match self.ask(message.session, ask, time::now()).await? {
            Answer::Published(Some(receiver)) => codec::incarnation_bytes(receiver),
            _ => Vec::new(),
        };
        Ok(Response::new(proto::MailReply { receiver }))
    }

    async fn report(&self, request: Request<proto::ReportRequest>) -> Call<proto::ReportReply> {
        let message = request.into_inner();
        let ask = Ask::Report(overview_codec::report(message.figures, message.events));
        self.ask(message.session, ask, time::now()).await?;
        Ok(Response::new(proto::ReportReply {}))
    }

    async fn observe(&self, request: Request<proto::ObserveRequest>) -> Call<proto::ObserveReply> {
        let observer = formed(overview_codec::observer(request.into_inner()))?;
        let reply = self.hub.call(|ticket| Input::Observe { ticket, observer }).await;
        match settle(reply)?.answer {
            Answer::Deployment(overview) => Ok(Response::new(overview_codec::overview_message(&overview, self.life))),
            _ => Err(tonic::Status::internal("an observer was answered with something else")),
        }
    }

    async fn barrier(&self, request: Request<proto::BarrierRequest>) -> Call<proto::BarrierReply> {
        let message = request.into_inner();
        let ask = Ask::Barrier { name: message.name, participants: message.participants, call: message.call };
        self.ask(message.session, ask, deadline(message.timeout_ms)).await?;
        Ok(Response::new(proto::BarrierReply {}))
    }
}
