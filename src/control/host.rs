//! A control plane that listens.

use super::health::Thresholds;
use super::hub::Hub;
use super::identity::check_bounds;
use super::incoming::Incoming;
use super::limits::{HELLO_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, WAITS_PER_MEMBER_MAX};
use super::runtime;
use super::secret::random;
use super::service::Service;
use super::session::Plane;
use super::types::Identity;
use crate::error::{Error, Result};
use crate::ids::Incarnation;
use std::net::TcpListener;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Name of the thread that serves.
const THREAD_NAME: &str = "reclane-plane";

/// A running control plane. Dropping it stops it: members lose it, data traffic does not notice.
#[derive(Debug)]
pub struct ControlPlane {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Listens on `host` and `port` (0: any free one) and serves from a thread of its own.
    ///
    /// # Errors
    /// `InvalidArgument` when the identity is out of bounds, `OsError` naming host, port and reason when the port cannot
    /// be had.
    pub fn serve(host: &str, port: u16, identity: &Identity) -> Result<ControlPlane> {
        ControlPlane::serve_watching(host, port, identity, Thresholds::default())
    }

    /// The same, with thresholds of its own for the health of servers.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_watching(host: &str, port: u16, identity: &Identity, thresholds: Thresholds) -> Result<ControlPlane> {
        check_bounds(identity).map_err(|refusal| refusal.into_error())?;
        let life = Incarnation(u128::from_ne_bytes(random()?));
        let plane = Plane::new(identity.clone(), life).with_thresholds(thresholds).with_session_key(random()?);
        let listener = bind(host, port)?;
        let local = listener.local_addr().map_err(|source| cannot_listen(host, port, &source))?;
        let runtime = runtime::event_loop(THREAD_NAME)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(|source| cannot_listen(host, port, &source))?
        };
        let hub = Hub::new(plane);
        let (stop, stopped) = oneshot::channel();
        let thread = crate::thread::start(THREAD_NAME, move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(hub, listener, life) => {}
                    // An error means that the handle is gone: stop as well.
                    _ = stopped => {}
                }
            });
            // Every connection and call ends here; nothing outlives the thread.
            drop(runtime);
        })?;
        crate::event!(crate::observe::Level::INFO, crate::observe::events::CONTROL_PLANE_LISTENING, address = %local, deployment = identity.deployment_id);
        Ok(ControlPlane { port: local.port(), stop: Some(stop), thread: Some(thread) })
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops and waits until its thread has ended.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            crate::event!(
                crate::observe::Level::ERROR,
                crate::observe::events::CONTROL_PLANE_PANICKED,
                port = self.port
            );
        }
    }
}

async fn serve(hub: crate::sync::Arc<Hub>, listener: tokio::net::TcpListener, life: Incarnation) {
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        // Each waiting call is a stream; the join and short calls come on top.
        .max_concurrent_streams(u32::try_from(WAITS_PER_MEMBER_MAX).unwrap_or(u32::MAX).saturating_add(64))
        .serve_with_incoming(Service::server(hub.clone(), life), Incoming::new(listener, HELLO_TIMEOUT));
    tokio::select! {
        outcome = server => {
            if let Err(error) = outcome {
                crate::event!(crate::observe::Level::ERROR, crate::observe::events::CONTROL_PLANE_FAILED, %error);
            }
        }
        () = hub.keep_time() => {}
    }
}

fn bind(host: &str, port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind((host, port)).map_err(|source| cannot_listen(host, port, &source))?;
    listener.set_nonblocking(true).map_err(|source| cannot_listen(host, port, &source))?;
    Ok(listener)
}

fn cannot_listen(host: &str, port: u16, source: &std::io::Error) -> Box<Error> {
    let hint = match source.kind() {
        std::io::ErrorKind::AddrInUse => "; the port is taken, choose another rdma-control-plane-port",
        std::io::ErrorKind::AddrNotAvailable => "; rdma-control-plane-host is no address of this machine",
        std::io::ErrorKind::PermissionDenied => "; this user may not listen on that port",
        _ => "",
    };
    let mut error = Error::os(format_args!("the control plane cannot listen on {host}:{port}"), source);
    error.message.push_str(hint);
    error
}
