//! Failures of SDK requests, converted to errors that name the cause.

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::{RequestId, RequestIdExt};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::error::Error;

/// Maximum characters of a server's message that are shown.
const MAX_TEXT: usize = 400;
/// Precedes the request id in a cause.
const REQUEST: &str = "request ";

/// A failed request, as described by the server or the connection.
pub struct Failure {
    /// The error code of the service, such as `NoSuchKey`; empty if there is none.
    pub code: String,
    /// HTTP status; 0 if there was no response.
    pub status: u16,
    cause: String,
    /// Set if the policy forbids the connection.
    forbidden: Option<Error>,
}

impl Failure {
    pub fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + RequestId + RequestIdExt + 'static,
    {
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        let code = short(error.code().unwrap_or_default());
        let SdkError::ServiceError(service) = error else {
            return Self { code, status, cause: local_cause(error), forbidden: forbidden(error) };
        };
        let mut parts = Vec::new();
        if !code.is_empty() {
            parts.push(code.clone());
        }
        parts.extend(service.err().message().map(short));
        parts.push(format!("status {status}"));
        parts.extend(service.err().request_id().map(|id| format!("{REQUEST}{}", short(id))));
        Self { code, status, cause: parts.join(", "), forbidden: None }
    }

    pub fn into_error(self, place: &str, action: &'static str, key: &str) -> Error {
        if let Some(error) = self.forbidden {
            return error;
        }
        let (place, key, cause) = (place.to_owned(), key.to_owned(), self.cause);
        match self.status {
            401 | 403 => Error::Denied { place, action, key, cause },
            _ => Error::Storage { place, action, key, cause },
        }
    }
}

/// Returns a cause without the request id, which differs each time.
pub fn without_request_id(cause: &str) -> &str {
    cause.rsplit_once(&format!(", {REQUEST}")).map_or(cause, |(said, _)| said)
}

/// Returns the policy error, if that is why no request was sent.
fn forbidden<E>(error: &SdkError<E, HttpResponse>) -> Option<Error> {
    let SdkError::DispatchFailure(failure) = error else { return None };
    let source = std::error::Error::source(failure.as_connector_error()?)?;
    source.downcast_ref::<Error>().cloned()
}

/// Limits a server's message to one line of reasonable length.
fn short(text: &str) -> String {
    let line = text.chars().take(MAX_TEXT);
    line.map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Describes an error that did not come from the server. Omits the request, which contains the
/// signature.
fn local_cause<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: std::error::Error + 'static,
{
    match error {
        SdkError::DispatchFailure(failure) => {
            let source = failure.as_connector_error().map(|error| {
                std::error::Error::source(error).map_or_else(|| error.to_string(), causes)
            });
            source.unwrap_or_else(|| "the request could not be sent".to_owned())
        }
        SdkError::TimeoutError(_) => "timed out".to_owned(),
        SdkError::ConstructionFailure(_) => causes(error),
        _ => format!("invalid response: {}", causes(error)),
    }
}

pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_without_its_request_id_is_always_the_same() {
        assert_eq!(
            without_request_id("AccessDenied, no, status 403, request 1A"),
            "AccessDenied, no, status 403"
        );
        assert_eq!(without_request_id("timed out"), "timed out");
    }
}
