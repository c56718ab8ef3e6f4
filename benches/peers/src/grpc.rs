//! gRPC by tonic, over a Unix socket or TCP, one thread on each side.

use crate::Failure;
use crate::work::{Op, Peer, Shape, Tables, Work, consume, request_bytes, write_request};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// The one message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bytes {
    #[prost(bytes = "vec", tag = "1")]
    pub content: Vec<u8>,
}

#[allow(clippy::all, missing_docs)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/rows.Rows.rs"));
}

use generated::rows_client::RowsClient;
use generated::rows_server::{Rows, RowsServer};

struct Service(Mutex<Tables>);

#[tonic::async_trait]
impl Rows for Service {
    async fn call(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let request = request.into_inner().content;
        let mut content = vec![0; Tables::answer_bytes(&request)];
        self.0.lock().map_err(|_| Status::internal("the table's lock"))?.execute(&request, &mut content);
        Ok(Response::new(Bytes { content }))
    }
}

const MESSAGE_MAX: usize = 1 << 20;

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

pub fn serve(work: &Work, place: &str) -> Result<(), Failure> {
    let service = RowsServer::new(Service(Mutex::new(Tables::fill(work)))).max_decoding_message_size(MESSAGE_MAX);
    runtime()?.block_on(async {
        let router = Server::builder().add_service(service);
        if place.starts_with('/') {
            let listener = tokio::net::UnixListener::bind(place)?;
            router.serve_with_incoming(tokio_stream::wrappers::UnixListenerStream::new(listener)).await?;
        } else {
            router.serve(place.parse()?).await?;
        }
        Ok(())
    })
}

type Answer = Result<Response<Bytes>, Status>;

pub struct Client {
    client: RowsClient<Channel>,
    pending: Vec<Option<JoinHandle<Answer>>>,
    rows: Vec<u8>,
    runtime: Runtime,
}

impl Client {
    pub fn open(place: &str) -> Result<Client, Failure> {
        let runtime = runtime()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let client = loop {
            match runtime.block_on(connect(place)) {
                Ok(channel) => break RowsClient::new(channel).max_decoding_message_size(MESSAGE_MAX),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Ok(Client { client, pending: (0..32).map(|_| None).collect(), rows: vec![0; 512 * 128], runtime })
    }
}

async fn connect(place: &str) -> Result<Channel, Failure> {
    if !place.starts_with('/') {
        return Ok(Endpoint::try_from(format!("http://{place}"))?.tcp_nodelay(true).connect().await?);
    }
    let place = place.to_owned();
    let connector = tower::service_fn(move |_| {
        let place = place.clone();
        async move { tokio::net::UnixStream::connect(place).await.map(hyper_util::rt::TokioIo::new) }
    });
    Ok(Endpoint::try_from("http://localhost")?.connect_with_connector(connector).await?)
}

impl Peer for Client {
    fn begin(&mut self, slot: usize, op: Op, shape: Shape, keys: &[u64]) -> Result<(), Failure> {
        let mut content = vec![0; request_bytes(op, shape)];
        write_request(&mut content, op, shape, keys, &self.rows);
        let mut client = self.client.clone();
        self.pending[slot] = Some(self.runtime.spawn(async move { client.call(Bytes { content }).await }));
        Ok(())
    }

    fn finish(&mut self, slot: usize, op: Op, _shape: Shape) -> Result<(), Failure> {
        let pending = self.pending[slot].take().ok_or("no request in this slot")?;
        let answer = self.runtime.block_on(pending)??;
        if op == Op::Get {
            consume(&answer.into_inner().content);
        }
        Ok(())
    }
}
