//! What is measured, and in what.

/// One figure of one turn.
pub struct Figure {
    pub name: &'static str,
    pub unit: Unit,
    pub value: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Fewer are better.
    Milliseconds,
    /// Fewer are better.
    Mib,
    /// More are better.
    PerSecond,
    /// More are better.
    MibPerSecond,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Mib => "MiB",
            Self::PerSecond => "/s",
            Self::MibPerSecond => "MiB/s",
        }
    }

    /// How many times better `ours` is.
    pub fn better(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::Milliseconds | Self::Mib => theirs / ours,
            Self::PerSecond | Self::MibPerSecond => ours / theirs,
        }
    }
}
