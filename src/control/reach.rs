//! Asking whether a control plane is there, without joining.

use super::codec::proto;
use super::codec::proto::control_client::ControlClient as Stub;
use super::link::chain;
use super::runtime;
use crate::error::{Error, Result, Status};
use core::time::Duration;
use tonic::transport::Endpoint;

/// Whether a control plane answers at `host` and `port`. Blocks, at most for `timeout`.
///
/// # Errors
/// `InvalidArgument` when `host` is none; `ControlPlaneUnreachable` with the cause.
pub fn probe(host: &str, port: u16, timeout: Duration) -> Result<()> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|source| {
        let message = format!("rdma-control-plane-host '{host}' is no host name or address: {source}");
        Error::new(Status::InvalidArgument, message)
    })?;
    let asked = async {
        let channel = endpoint.connect_timeout(timeout).connect().await.map_err(|error| chain(&error))?;
        Stub::new(channel).probe(proto::ProbeRequest {}).await.map_err(|status| chain(&status))
    };
    let runtime = runtime::event_loop("reclane-reach")?;
    let answer = runtime.block_on(async { tokio::time::timeout(timeout, asked).await });
    // Not waiting for a name look-up that hangs.
    runtime.shutdown_background();
    let why = match answer {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(why)) => why,
        Err(_) => "it does not answer".to_owned(),
    };
    Err(Error::new(Status::ControlPlaneUnreachable, format!("no control plane answers at {address}: {why}")))
}
