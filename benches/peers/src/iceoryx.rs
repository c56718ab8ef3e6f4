//! iceoryx2's request-response, both ends looking for messages without a pause.

use crate::Failure;
use crate::work::{MESSAGE_MAX, Op, Peer, Shape, Tables, Work, consume, request_bytes, write_request};
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client as Port;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::request_response::PortFactory;
use std::time::{Duration, Instant};

type Ipc = ipc::Service;

fn service(node: &Node<Ipc>, name: &str) -> Result<PortFactory<Ipc, [u8], (), [u8], ()>, Failure> {
    Ok(node
        .service_builder(&name.try_into()?)
        .request_response::<[u8], [u8]>()
        .max_active_requests_per_client(32)
        .max_loaned_requests(33)
        .max_response_buffer_size(1)
        .max_borrowed_responses_per_pending_response(1)
        .max_clients(1)
        .max_servers(1)
        .request_payload_alignment(Alignment::new(64).ok_or("an alignment")?)
        .response_payload_alignment(Alignment::new(64).ok_or("an alignment")?)
        .open_or_create()?)
}

pub fn serve(work: &Work, name: &str) -> Result<(), Failure> {
    set_log_level(LogLevel::Error);
    let mut tables = Tables::fill(work);
    let node = NodeBuilder::new().create::<Ipc>()?;
    let server = service(&node, name)?.server_builder().initial_max_slice_len(MESSAGE_MAX).create()?;
    loop {
        let Some(request) = server.receive()? else {
            core::hint::spin_loop();
            continue;
        };
        let bytes = Tables::answer_bytes(request.payload()).max(1);
        let mut answer = request.loan_slice_uninit(bytes)?;
        // SAFETY: the memory is ours until it is sent; bytes need no initial value to be written.
        let place = unsafe { core::slice::from_raw_parts_mut(answer.payload_mut().as_mut_ptr().cast::<u8>(), bytes) };
        tables.execute(request.payload(), place);
        // SAFETY: `execute` wrote every row; a single byte without rows is not read.
        unsafe { answer.assume_init() }.send()?;
    }
}

pub struct Client {
    port: Port<Ipc, [u8], (), [u8], ()>,
    pending: Vec<Option<PendingResponse<Ipc, [u8], (), [u8], ()>>>,
    rows: Vec<u8>,
    _node: Node<Ipc>,
}

impl Client {
    pub fn open(name: &str) -> Result<Client, Failure> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new().create::<Ipc>()?;
        let service = service(&node, name)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while service.dynamic_config().number_of_servers() == 0 {
            if Instant::now() > deadline {
                return Err("no iceoryx2 server within 20 s".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let port = service.client_builder().initial_max_slice_len(MESSAGE_MAX).create()?;
        Ok(Client { port, pending: (0..32).map(|_| None).collect(), rows: vec![0; 512 * 128], _node: node })
    }
}

impl Peer for Client {
    fn begin(&mut self, slot: usize, op: Op, shape: Shape, keys: &[u64]) -> Result<(), Failure> {
        let bytes = request_bytes(op, shape);
        let mut request = self.port.loan_slice_uninit(bytes)?;
        // SAFETY: the memory is ours until it is sent; bytes need no initial value to be written.
        let place = unsafe { core::slice::from_raw_parts_mut(request.payload_mut().as_mut_ptr().cast::<u8>(), bytes) };
        write_request(place, op, shape, keys, &self.rows);
        // SAFETY: `write_request` wrote all but padding of the header, which nobody reads.
        self.pending[slot] = Some(unsafe { request.assume_init() }.send()?);
        Ok(())
    }

    fn finish(&mut self, slot: usize, op: Op, _shape: Shape) -> Result<(), Failure> {
        let pending = self.pending[slot].take().ok_or("no request in this slot")?;
        loop {
            if let Some(answer) = pending.receive()? {
                if op == Op::Get {
                    consume(answer.payload());
                }
                return Ok(());
            }
            core::hint::spin_loop();
        }
    }
}
