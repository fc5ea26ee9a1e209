//! What a person should know about the options they gave, said once.

use tracing::warn;

#[derive(Debug, Default)]
pub struct Warnings(Vec<String>);

impl Warnings {
    pub fn say(&mut self, text: String) {
        self.0.push(text);
    }

    /// An option that is taken and does nothing here.
    pub fn no_effect(&mut self, option: &str, why: &str) {
        self.0.push(format!("{option} has no effect: {why}"));
    }

    pub fn texts(self) -> Vec<String> {
        self.0
    }

    pub fn log(&self) {
        for text in &self.0 {
            warn!("{text}");
        }
    }

    #[cfg(test)]
    pub fn has(&self, word: &str) -> bool {
        self.0.iter().any(|text| text.contains(word))
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
