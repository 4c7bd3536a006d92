//! Which broker coordinates a group? Remembered until somebody finds that it is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::sabotaged;

use super::{Inner, node};
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::messages::FindCoordinatorRequest;
use crate::proto::{ApiKey, ErrorCode, text};
use crate::types::BrokerId;

/// FindCoordinator's `key_type` of consumer groups.
const GROUP: i8 = 0;
/// From this version on keys and answers are lists (KIP-699).
const LISTS: i16 = 4;

/// Coordinators by group.
#[derive(Debug, Default)]
pub(super) struct Coordinators(Mutex<BTreeMap<String, Known>>);

#[derive(Clone, Debug, Default)]
struct Known {
    broker: Option<BrokerId>,
    /// Held by whoever is asking; the others take what it hears.
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl Coordinators {
    pub(super) fn forget(&self, group: &str, broker: BrokerId) {
        if let Some(known) = self.all().get_mut(group)
            && known.broker == Some(broker)
            && !sabotaged("coordinator-forgotten")
        {
            known.broker = None;
        }
    }

    fn known(&self, group: &str) -> Known {
        self.all().entry(group.to_owned()).or_default().clone()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn find(inner: &Arc<Inner>, group: &str) -> Result<BrokerId, Error> {
    let asking = inner.coordinators.known(group).asking;
    let _asking = asking.lock().await;
    if let Some(known) = inner.coordinators.known(group).broker {
        return Ok(known);
    }
    let connection = inner.any().await?;
    let version = connection.require(ApiKey::FindCoordinator)?;
    let request = FindCoordinatorRequest::default().with_key_type(GROUP);
    let request = if version >= LISTS {
        request.with_coordinator_keys(vec![text(group)])
    } else {
        request.with_key(text(group))
    };
    let doing = || format!("finding the coordinator of group {group} through {}", connection.peer());
    let answer = connection
        .call_version(&request, version, inner.config.limits.request_timeout)
        .await
        .map_err(|error| error.during(&format!("finding the coordinator of group {group}")))?;
    let (code, message, found) = if version >= LISTS {
        let row = answer.coordinators.iter().find(|row| row.key.as_str() == group);
        let row = row.ok_or_else(|| {
            Error::decode(doing(), DecodeError::Body("the answer names other groups only".into()))
        })?;
        (row.error_code, &row.error_message, node(row.node_id.0, &row.host, row.port, None))
    } else {
        let found = node(answer.node_id.0, &answer.host, answer.port, None);
        (answer.error_code, &answer.error_message, found)
    };
    if code != 0 {
        let message = message.as_ref().map(ToString::to_string).filter(|text| !text.is_empty());
        return Err(Error::new(doing(), ErrorKind::Broker(ErrorCode(code), message)));
    }
    let found = found.ok_or_else(|| Error::broker(doing(), ErrorCode::COORDINATOR_NOT_AVAILABLE))?;
    let id = found.id;
    inner.learn_node(found);
    inner.coordinators.all().entry(group.to_owned()).or_default().broker = Some(id);
    Ok(id)
}
