//! A `Failure` inside a gRPC status, whole: the code of gRPC itself is only for foreign eyes.

use carril_proto::v1;
use carril_types::{ErrorCode, Failure};
use prost::Message;
use tonic::{Code, Status};

pub fn to_status(failure: Failure) -> Status {
    let message = failure.message.clone();
    let details = v1::Failure::from(failure).encode_to_vec();
    Status::with_details(Code::FailedPrecondition, message, details.into())
}

/// `lost` is what a broken transport means here: the loss of a head, or of an agent.
pub fn from_status(status: Status, lost: ErrorCode) -> Failure {
    if !status.details().is_empty()
        && let Ok(failure) = v1::Failure::decode(status.details())
        && !failure.code.is_empty()
    {
        return failure.into();
    }
    match status.code() {
        Code::Unavailable | Code::Cancelled | Code::Aborted | Code::Unknown => gone(lost),
        code => Failure::new(ErrorCode::Internal, format!("{code:?}: {}", status.message())),
    }
}

/// What the transport says of it is about frames and bodies, and nothing to a user.
fn gone(lost: ErrorCode) -> Failure {
    let failure = |who| Failure::new(lost, format!("the {who} is gone: its process has ended or was killed"));
    match lost {
        ErrorCode::HeadLost => {
            failure("head").hint("what was reported is in the run's directory: `carril runs` lists it")
        }
        _ => failure("agent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_2_a_failure_crosses_whole() {
        for code in ErrorCode::ALL {
            let failure = Failure::new(*code, "what").hint("way out");
            assert_eq!(from_status(to_status(failure.clone()), ErrorCode::HeadLost), failure);
        }
    }

    #[test]
    fn net_2_a_broken_transport_is_a_typed_loss() {
        let failure = from_status(Status::unavailable("gone"), ErrorCode::AgentLost);
        assert_eq!(failure.code, ErrorCode::AgentLost);
    }
}
