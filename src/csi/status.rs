//! Maps errors to gRPC codes.

use tonic::{Code, Status};

use crate::error::Error;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(code(&error), error.to_string())
    }
}

/// Returns the gRPC code of an error.
pub fn code(error: &Error) -> Code {
    match error {
        Error::NotFound | Error::NoSuchAddress | Error::NoAttribute => Code::NotFound,
        Error::Exists => Code::AlreadyExists,
        Error::BadInput(_)
        | Error::Invalid
        | Error::NameTooLong
        | Error::NotDirectory
        | Error::IsDirectory
        | Error::NotTty
        | Error::BadHandle => Code::InvalidArgument,
        Error::NotPermitted | Error::AccessDenied | Error::Forbidden(_) | Error::Denied { .. } => {
            Code::PermissionDenied
        }
        Error::OutOfRange | Error::TooLarge => Code::OutOfRange,
        Error::NoSpace
        | Error::QuotaExceeded
        | Error::TooManyLinks
        | Error::TooManyOpen
        | Error::NoMemory(_)
        | Error::Exhausted(_) => Code::ResourceExhausted,
        Error::Refused(_) | Error::ReadOnly | Error::NotEmpty => Code::FailedPrecondition,
        Error::NotSupported => Code::Unimplemented,
        Error::WouldBlock | Error::Contended(_) => Code::Aborted,
        Error::Unreachable { .. } | Error::Interrupted => Code::Unavailable,
        Error::Engine { .. }
        | Error::Damaged { .. }
        | Error::Storage { .. }
        | Error::MissingBlock { .. }
        | Error::BrokenPipe
        | Error::Unknown { .. }
        | Error::WritesLost
        | Error::Internal { .. } => Code::Internal,
    }
}

/// Whether the operator of the driver, rather than the caller, should look into it.
pub fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Internal
            | Code::Unavailable
            | Code::Unknown
            | Code::DataLoss
            | Code::DeadlineExceeded
            | Code::FailedPrecondition
            | Code::ResourceExhausted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_request_and_an_unreachable_server_have_different_codes() {
        let away = Error::Unreachable { place: "redis://h/1".into(), cause: "refused".into() };
        let status = Status::from(away);
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "redis://h/1: refused"));
        assert!(is_fault(status.code()));
        let status = Status::from(Error::bad_input("no such option"));
        assert_eq!((status.code(), is_fault(status.code())), (Code::InvalidArgument, false));
    }
}
