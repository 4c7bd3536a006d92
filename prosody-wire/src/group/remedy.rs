//! What does an error of the coordinator ask of a member?

use prosody_base::sabotaged;

use crate::error::Error;
use crate::proto::{Disposition, ErrorCode};

/// What an error asks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Find the coordinator again.
    Find,
    /// The same again, later.
    Wait,
    /// The group is rebalancing: join it.
    Join,
    /// The coordinator does not know us.
    NewMember,
    /// Another generation or epoch came without us.
    NewGeneration,
    /// Somebody else runs with our instance id.
    End,
    /// Tell the reader; try again much later.
    Report,
}

impl Remedy {
    pub(crate) fn of(error: &Error) -> Remedy {
        match error.code() {
            Some(ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND) => Remedy::NewMember,
            Some(ErrorCode::ILLEGAL_GENERATION | ErrorCode::FENCED_MEMBER_EPOCH) => Remedy::NewGeneration,
            Some(ErrorCode::STALE_MEMBER_EPOCH) if sabotaged("stale-epoch-stays") => Remedy::NewGeneration,
            Some(ErrorCode::REBALANCE_IN_PROGRESS) => Remedy::Join,
            Some(ErrorCode::FENCED_INSTANCE_ID) => Remedy::End,
            Some(code) => match code.disposition() {
                Disposition::FindCoordinator => Remedy::Find,
                Disposition::Retry | Disposition::RefreshMetadata | Disposition::Rejoin => Remedy::Wait,
                Disposition::Fatal => Remedy::Report,
            },
            // No answer, or none that can be read: another connection, perhaps another broker.
            None if error.is_retriable() => Remedy::Find,
            None => Remedy::Report,
        }
    }
}
