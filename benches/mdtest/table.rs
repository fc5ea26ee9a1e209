//! The table of median rates of both clients.

use std::fmt;

use crate::Rates;

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

struct Row {
    phase: String,
    width: usize,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Table {
    pub fn add(&mut self, width: usize, is_ours: bool, rates: Rates) {
        for (phase, rate) in rates {
            let row = self.row(phase, width);
            if is_ours { &mut row.ours } else { &mut row.theirs }.push(rate);
        }
    }

    fn row(&mut self, phase: String, width: usize) -> &mut Row {
        let known = self.rows.iter().position(|row| row.phase == phase && row.width == width);
        let index = known.unwrap_or_else(|| {
            self.rows.push(Row { phase, width, ours: Vec::new(), theirs: Vec::new() });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| operation | in flight | Go client, /s | this client, /s | ratio |")?;
        writeln!(f, "|---|--:|--:|--:|--:|")?;
        for Row { phase, width, ours, theirs } in &self.rows {
            let (a, b) = (median(theirs), median(ours));
            // The ratio of neighbors in time, which other load on the machine affects alike.
            let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(b, a)| b / a).collect();
            let ratio = median(&ratios);
            writeln!(f, "| {phase} | {width} | {a:.0} | {b:.0} | {ratio:.1} |")?;
        }
        Ok(())
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}
