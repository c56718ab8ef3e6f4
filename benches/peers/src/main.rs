//! Peers of reclane that are Rust libraries, doing the work that `rows.h` describes.
//!
//!     peers iceoryx2|grpc-uds|grpc-tcp [--ms N] [--table-mib N] [--only NAME]

mod grpc;
mod iceoryx;
mod work;

use std::process::{Child, Command, ExitCode, Stdio};
use work::{Peer, Work};

/// The other process; ended when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), Failure> {
    let (work, rest) = Work::take(words)?;
    match rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", kind, place] => {
            work::end_with_parent();
            work::pin(work::SERVER_CPU);
            match kind {
                "iceoryx2" => iceoryx::serve(&work, place),
                _ => grpc::serve(&work, place),
            }
        }
        [kind @ ("iceoryx2" | "grpc-uds" | "grpc-tcp")] => {
            let place = match kind {
                "iceoryx2" => format!("rows-{}", std::process::id()),
                "grpc-uds" => {
                    std::env::temp_dir().join(format!("rows-{}.sock", std::process::id())).display().to_string()
                }
                _ => format!("127.0.0.1:{}", free_port()?),
            };
            let child = Command::new(std::env::current_exe()?)
                .args(["serve", kind, &place, "--table-mib", &(work.table_bytes >> 20).to_string()])
                .stdin(Stdio::null())
                .spawn()?;
            let server = Server(child);
            work::pin(work::CLIENT_CPU);
            let mut peer: Box<dyn Peer> = if kind == "iceoryx2" {
                Box::new(iceoryx::Client::open(&place)?)
            } else {
                Box::new(grpc::Client::open(&place)?)
            };
            let result = work.cells(&mut *peer, server.0.id());
            let _ = std::fs::remove_file(&place);
            result
        }
        _ => Err("usage: peers iceoryx2|grpc-uds|grpc-tcp [--ms N] [--table-mib N] [--only NAME]".into()),
    }
}

fn free_port() -> Result<u16, Failure> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
