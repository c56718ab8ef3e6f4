//! Asking a control plane without joining: whether it is there, and who belongs to its deployment.

use super::codec::proto;
use super::codec::proto::control_client::ControlClient as Stub;
use super::limits::OVERVIEW_BYTES_MAX;
use super::link::{Failure, chain, failure};
use super::overview::{Observer, Overview};
use super::overview_codec;
use super::runtime;
use crate::error::{Error, Result, Status};
use core::time::Duration;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

fn endpoint(host: &str, port: u16, timeout: Duration) -> Result<(Endpoint, String)> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|source| {
        let message = format!("rdma-control-plane-host '{host}' is no host name or address: {source}");
        Error::new(Status::InvalidArgument, message)
    })?;
    Ok((endpoint.connect_timeout(timeout), address))
}

fn silent(address: &str, why: &str) -> Box<Error> {
    Error::new(Status::ControlPlaneUnreachable, format!("no control plane answers at {address}: {why}"))
}

/// Whether a control plane answers at `host` and `port`. Blocks, at most for `timeout`.
///
/// # Errors
/// `InvalidArgument` when `host` is none; `ControlPlaneUnreachable` with the cause.
pub fn probe(host: &str, port: u16, timeout: Duration) -> Result<()> {
    let (endpoint, address) = endpoint(host, port, timeout)?;
    let asked = async {
        let channel = endpoint.connect().await.map_err(|error| chain(&error))?;
        Stub::new(channel).probe(proto::ProbeRequest {}).await.map_err(|status| chain(&status))
    };
    let runtime = runtime::event_loop("reclane-reach")?;
    let answer = runtime.block_on(async { tokio::time::timeout(timeout, asked).await });
    // Not waiting for a name look-up that hangs.
    runtime.shutdown_background();
    match answer {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(why)) => Err(silent(&address, &why)),
        Err(_) => Err(silent(&address, "it does not answer")),
    }
}

/// Looks at a deployment without belonging to it. Threads: one at a time.
#[derive(Debug)]
pub struct Spectator {
    endpoint: Endpoint,
    address: String,
    observer: Observer,
    timeout: Duration,
    runtime: Option<Runtime>,
    stub: Option<Stub<Channel>>,
}

impl Spectator {
    /// Of the control plane at `host` and `port`; nothing is asked yet. `timeout` is for each look.
    ///
    /// # Errors
    /// `InvalidArgument` when `host` is none; `OsError`.
    pub fn new(host: &str, port: u16, observer: Observer, timeout: Duration) -> Result<Spectator> {
        let (endpoint, address) = endpoint(host, port, timeout)?;
        let runtime = Some(runtime::event_loop("reclane-reach")?);
        Ok(Spectator { endpoint, address, observer, timeout, runtime, stub: None })
    }

    /// What there is to see now. Members are asked for numbers, which the next look brings.
    ///
    /// # Errors
    /// `ControlPlaneUnreachable`; `StaleEpoch` or `DeploymentMismatch` when it is another deployment's, or the token
    /// differs.
    pub fn look(&mut self) -> Result<Overview> {
        let Some(runtime) = &self.runtime else { return Err(silent(&self.address, "this spectator has ended")) };
        let request = overview_codec::observer_message(&self.observer);
        let (endpoint, known) = (self.endpoint.clone(), self.stub.take());
        let asked = async {
            let mut stub = match known {
                Some(stub) => stub,
                None => {
                    let channel = endpoint.connect().await.map_err(|error| Failure::Unreachable(chain(&error)))?;
                    Stub::new(channel).max_decoding_message_size(OVERVIEW_BYTES_MAX)
                }
            };
            let reply = stub.observe(request).await.map_err(|status| failure(&status))?.into_inner();
            Ok::<_, Failure>((stub, reply))
        };
        match runtime.block_on(async { tokio::time::timeout(self.timeout, asked).await }) {
            Ok(Ok((stub, reply))) => {
                self.stub = Some(stub);
                overview_codec::overview(reply).map_err(|refusal| refusal.into_error())
            }
            Ok(Err(Failure::Refused(refusal))) => Err(refusal.into_error()),
            Ok(Err(Failure::Unreachable(why))) => Err(silent(&self.address, &why)),
            Err(_) => Err(silent(&self.address, "it does not answer")),
        }
    }
}

impl Drop for Spectator {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Not waiting for a name look-up that hangs.
            runtime.shutdown_background();
        }
    }
}
