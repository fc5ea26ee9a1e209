//! What an answer of the SDK means: not there, or an error that says who said what.

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::{RequestId, RequestIdExt};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::error::Error;

/// A request that failed, by what the server or the connection said.
pub struct Failure {
    /// The service's word for it, such as `NoSuchKey`; empty if it said none.
    pub code: String,
    /// HTTP status, 0 if there was no answer.
    pub status: u16,
    cause: String,
}

impl Failure {
    pub fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + RequestId + RequestIdExt + 'static,
    {
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        let code = error.code().unwrap_or_default().to_owned();
        let SdkError::ServiceError(service) = error else {
            return Self { code, status, cause: below(error) };
        };
        let mut parts = Vec::new();
        if !code.is_empty() {
            parts.push(code.clone());
        }
        parts.extend(service.err().message().map(str::to_owned));
        parts.push(format!("status {status}"));
        parts.extend(service.err().request_id().map(|id| format!("request {id}")));
        Self { code, status, cause: parts.join(", ") }
    }

    pub fn into_error(self, place: &str, action: &'static str, key: &str) -> Error {
        Error::Storage { place: place.to_owned(), action, key: key.to_owned(), cause: self.cause }
    }
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
