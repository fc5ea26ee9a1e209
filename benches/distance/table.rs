//! The table: medians of both clients and of the bare client.

use std::fmt;

use crate::support::fixture::Client;
use crate::workload::Work;

/// Who did the work.
#[derive(Debug, Clone, Copy)]
pub enum Measurer {
    Mount(Client),
    Bare,
}

/// One result.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// MiB or files per second.
    pub rate: f64,
    /// Seconds of CPU time of the client for each GiB.
    pub cpu: Option<f64>,
}

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

struct Row {
    work: Work,
    ours: Vec<Measured>,
    theirs: Vec<Measured>,
    bare: Vec<Measured>,
}

impl Table {
    pub fn add(&mut self, work: Work, by: Measurer, measured: Option<Measured>) {
        let known = self.rows.iter().position(|row| row.work == work);
        let index = known.unwrap_or_else(|| {
            self.rows.push(Row { work, ours: Vec::new(), theirs: Vec::new(), bare: Vec::new() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[index];
        let list = match by {
            Measurer::Mount(Client::Ours) => &mut row.ours,
            Measurer::Mount(Client::Go) => &mut row.theirs,
            Measurer::Bare => &mut row.bare,
        };
        list.extend(measured);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | | Go | this | ratio | bare | of it | CPU s/GiB: Go | this |")?;
        writeln!(f, "|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for Row { work, ours, theirs, bare } in &self.rows {
            let rates = |all: &[Measured]| median(all.iter().map(|one| one.rate));
            let cpu = |all: &[Measured]| median(all.iter().filter_map(|one| one.cpu));
            // Of rounds next to each other: other load on the machine affects both.
            let ratio = median(ours.iter().zip(theirs).map(|(a, b)| a.rate / b.rate));
            let of_it = median(ours.iter().zip(bare).map(|(a, b)| a.rate / b.rate));
            let shown = |value: f64, digits: usize| {
                if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") }
            };
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                work.name(),
                work.unit(),
                shown(rates(theirs), 0),
                shown(rates(ours), 0),
                shown(ratio, 2),
                shown(rates(bare), 0),
                shown(of_it, 2),
                shown(cpu(theirs), 2),
                shown(cpu(ours), 2),
            )?;
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}
