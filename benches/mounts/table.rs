//! The table: medians of both clients.

use std::fmt;

use crate::measurement::{Measurement, Unit};
use crate::support::fixture::Client;

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    unit: Unit,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Table {
    pub fn add(&mut self, client: Client, measurements: &[Measurement]) {
        for Measurement { name, unit, value } in measurements {
            let known = self.rows.iter().position(|row| row.name == *name);
            let index = known.unwrap_or_else(|| {
                self.rows.push(Row { name, unit: *unit, ours: Vec::new(), theirs: Vec::new() });
                self.rows.len() - 1
            });
            let row = &mut self.rows[index];
            if client == Client::Ours { &mut row.ours } else { &mut row.theirs }.push(*value);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | | Go client | this client | times better |")?;
        writeln!(f, "|---|---|--:|--:|--:|")?;
        for Row { name, unit, ours, theirs } in &self.rows {
            // Of rounds next to each other: other load on the machine affects both.
            let pairs = ours.iter().zip(theirs);
            let ratios: Vec<f64> = pairs.map(|(a, b)| unit.better(*a, *b)).collect();
            let (a, b, ratio) = (median(theirs), median(ours), median(&ratios));
            let unit = unit.name();
            writeln!(f, "| {name} | {unit} | {a:.0} | {b:.0} | {ratio:.1} |")?;
        }
        Ok(())
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}
