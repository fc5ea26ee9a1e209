//! What an answer of the SDK means: not there, or an error that says who said what.

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::{RequestId, RequestIdExt};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::error::Error;

/// Letters of what a server says of itself that are told.
const LONGEST_TEXT: usize = 400;
/// Before the number that a server gave a request.
const REQUEST: &str = "request ";

/// A request that failed, by what the server or the connection said.
pub struct Failure {
    /// The service's word for it, such as `NoSuchKey`; empty if it said none.
    pub code: String,
    /// HTTP status, 0 if there was no answer.
    pub status: u16,
    cause: String,
    /// Why the place must not be asked at all.
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
            return Self { code, status, cause: below(error), forbidden: forbidden(error) };
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

/// What a server said, without the number that it gave the request: the same each time.
pub fn without_request_id(cause: &str) -> &str {
    cause.rsplit_once(&format!(", {REQUEST}")).map_or(cause, |(said, _)| said)
}

/// What the policy says against the place, if that is why nothing was sent.
fn forbidden<E>(error: &SdkError<E, HttpResponse>) -> Option<Error> {
    let SdkError::DispatchFailure(failure) = error else { return None };
    let source = std::error::Error::source(failure.as_connector_error()?)?;
    source.downcast_ref::<Error>().cloned()
}

/// What a server says, in a line that fits into a log.
fn short(text: &str) -> String {
    let line = text.chars().take(LONGEST_TEXT);
    line.map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The causes of an error that is not the server's, without the request: that has the signature.
fn below<E>(error: &SdkError<E, HttpResponse>) -> String
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
        _ => format!("unintelligible answer: {}", causes(error)),
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
    fn a_cause_without_its_request_is_without_variable_parts() {
        assert_eq!(
            without_request_id("AccessDenied, no, status 403, request 1A"),
            "AccessDenied, no, status 403"
        );
        assert_eq!(without_request_id("timed out"), "timed out");
    }
}
