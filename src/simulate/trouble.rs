//! Faults, as they are done to a world.

use super::plan::{Actor, Fault, Trouble};
use super::world::{Blocked, World};

/// A way that does not break at once must not be waited on for ever: stops are bounded by the plan.
pub(super) fn begin(world: &mut World, fault: &Fault) {
    let until = fault.at_ns + fault.for_ns;
    match fault.trouble {
        Trouble::Kill(actor) => {
            if world.host_of(actor).is_some() {
                world.kill(actor, until);
            }
        }
        Trouble::Leave(actor) => world.leave(actor, until),
        Trouble::Stop(actor) => stop(world, actor, fault.for_ns, until),
        Trouble::Block(from, to, both) => {
            if from != to {
                world.blocked.push(Blocked { from, to, until });
                if both {
                    world.blocked.push(Blocked { from: to, to: from, until });
                }
                world.apply_blocks();
            }
        }
        Trouble::Slow(actor, times) => slow(world, actor, u64::from(times), until),
        Trouble::Break(actor, pick) => {
            if let Some(host) = world.host_of(actor) {
                world.net.break_connection(host, pick as usize);
            }
        }
        Trouble::Skew(actor) => match actor {
            Actor::Plane => {}
            Actor::Shard(n) => world.shards[n as usize].skew += fault.for_ns,
            Actor::Client(n) => {
                let place = &mut world.clients[n as usize];
                place.skew += fault.for_ns;
            }
        },
    }
}

fn stop(world: &mut World, actor: Actor, for_ns: u64, until: u64) {
    match actor {
        Actor::Plane => world.plane.stopped_until = until,
        Actor::Shard(n) => world.shards[n as usize].stopped_until = until,
        Actor::Client(n) => {
            let place = &mut world.clients[n as usize];
            place.stopped_until = until;
            if let Some(client) = place.process.as_mut() {
                client.was_stopped(for_ns);
            }
        }
    }
}

fn slow(world: &mut World, actor: Actor, times: u64, until: u64) {
    let place = match actor {
        Actor::Plane => return,
        Actor::Shard(n) => {
            let place = &mut world.shards[n as usize];
            (&mut place.slow, &mut place.slow_until)
        }
        Actor::Client(n) => {
            let place = &mut world.clients[n as usize];
            (&mut place.slow, &mut place.slow_until)
        }
    };
    (*place.0, *place.1) = (times, until);
    if let Some(host) = world.host_of(actor) {
        world.net.slow_down(host, times);
    }
}
