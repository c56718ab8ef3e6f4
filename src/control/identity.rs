//! Whether a joining process belongs to this deployment.

#![forbid(unsafe_code)]

use super::limits::{LAYOUT_BYTES_MAX, NAME_BYTES_MAX};
use super::overview::Observer;
use super::refusal::{Reason, Refusal};
use super::types::{Identity, Member, Role};
use crate::error::Status;
use crate::options::layout_difference;

/// Refuses names that are too long to keep.
pub(super) fn check_name(what: &str, value: &str) -> Result<(), Refusal> {
    check_length(what, value.len(), NAME_BYTES_MAX)
}

fn check_length(what: &str, bytes: usize, bytes_max: usize) -> Result<(), Refusal> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("{what} has {bytes} bytes; at most {bytes_max} are allowed");
    Err(Refusal::new(Status::InvalidArgument, Reason::TooLarge, message))
}

/// The bounds of an identity, whoever's it is.
pub(super) fn check_bounds(identity: &Identity) -> Result<(), Refusal> {
    check_name("deployment-id", &identity.deployment_id)?;
    check_name("namespace", &identity.namespace)?;
    check_length("the layout", identity.layout.len(), LAYOUT_BYTES_MAX)
}

/// Refuses a member that is not of our deployment, with the first thing that differs and both its values.
pub(super) fn check_member(ours: &Identity, theirs: &Identity, member: &Member) -> Result<(), Refusal> {
    check_bounds(theirs)?;
    check_name("the host name", &member.host)?;
    let who = format!("pid {} on {}", member.pid, member.host);
    // Before anything is told of this deployment.
    check_secret(ours, theirs, &who)?;
    if ours.deployment_id != theirs.deployment_id {
        let message = format!(
            "{who} belongs to deployment-id '{}', this control plane to '{}'",
            theirs.deployment_id, ours.deployment_id
        );
        return Err(Refusal::new(Status::StaleEpoch, Reason::OtherDeployment, message));
    }
    if theirs.epoch < ours.epoch {
        let message = format!(
            "{who} belongs to stale deployment-epoch {}; deployment '{}' is at epoch {} now",
            theirs.epoch.0, ours.deployment_id, ours.epoch.0
        );
        return Err(Refusal::new(Status::StaleEpoch, Reason::StaleEpoch, message));
    }
    if theirs.epoch > ours.epoch {
        let message = format!(
            "this control plane of deployment '{}' is older than {who}: it is at deployment-epoch {}, the member at {}; \
             restart the control plane",
            ours.deployment_id, ours.epoch.0, theirs.epoch.0
        );
        return Err(Refusal::new(Status::StaleEpoch, Reason::ControlPlaneOlder, message));
    }
    if ours.namespace != theirs.namespace {
        return Err(differs(Reason::Namespace, &who, "namespace", &ours.namespace, &theirs.namespace));
    }
    if ours.num_shards != theirs.num_shards {
        let (a, b) = (ours.num_shards.to_string(), theirs.num_shards.to_string());
        return Err(differs(Reason::Layout, &who, "num-shards", &a, &b));
    }
    if let Some((name, a, b)) = layout_difference(&ours.layout, &theirs.layout) {
        return Err(differs(Reason::Layout, &who, &name, &a, &b));
    }
    if let Role::Server(shard) = member.role
        && shard.0 >= ours.num_shards
    {
        let message = format!("shard-id {shard} of {who} is out of range: num-shards is {}", ours.num_shards);
        return Err(Refusal::new(Status::OptionBounds, Reason::ShardOutOfRange, message));
    }
    Ok(())
}

/// Refuses an observer of another deployment.
pub(super) fn check_observer(ours: &Identity, observer: &Observer) -> Result<(), Refusal> {
    check_name("deployment-id", &observer.deployment_id)?;
    check_name("namespace", &observer.namespace)?;
    let theirs = Identity { secret: observer.secret.clone(), ..ours.clone() };
    check_secret(ours, &theirs, "whoever looks")?;
    if ours.deployment_id != observer.deployment_id {
        let message = format!(
            "this control plane belongs to deployment-id '{}', not to '{}'",
            ours.deployment_id, observer.deployment_id
        );
        return Err(Refusal::new(Status::StaleEpoch, Reason::OtherDeployment, message));
    }
    if ours.namespace != observer.namespace {
        return Err(differs(Reason::Namespace, "whoever looks", "namespace", &ours.namespace, &observer.namespace));
    }
    Ok(())
}

fn check_secret(ours: &Identity, theirs: &Identity, who: &str) -> Result<(), Refusal> {
    if ours.secret == theirs.secret {
        return Ok(());
    }
    let what = match (ours.secret.is_given(), theirs.secret.is_given()) {
        (true, false) => "gave none, and this control plane asks for one",
        (false, _) => "gave one, and this control plane was started without",
        (true, true) => "gave another one than this control plane has",
    };
    let message =
        format!("the token differs: {who} {what}; all members need a control-plane-token-file of one content");
    Err(Refusal::new(Status::DeploymentMismatch, Reason::Token, message))
}

fn differs(reason: Reason, who: &str, name: &str, ours: &str, theirs: &str) -> Refusal {
    let cure = if name == "deployment-file" {
        "give all members files that mean the same, or none; 'reclane deployment check FILE' shows the digests of one"
    } else {
        "give all members the same; 'reclane options NAME' tells of an option whether it shapes the layout"
    };
    let message =
        format!("{name} differs: this control plane was started with '{ours}', {who} with '{theirs}'; {cure}");
    Refusal::new(Status::DeploymentMismatch, reason, message)
}
