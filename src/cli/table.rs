//! Plain-text tables for terminals.

/// Renders rows, the first of which is the header: the first column aligned left, all others right.
pub fn render(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let rule = format!("+{}+\n", dashes.join("+"));
    let mut out = rule.clone();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = match (number, column) {
                (0, _) => center(cell, *width),
                (_, 0) => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            out.push_str("| ");
            out.push_str(&cell);
            out.push(' ');
        }
        out.push_str("|\n");
        if number == 0 || number == rows.len() - 1 {
            out.push_str(&rule);
        }
    }
    out
}

/// Centers a cell, one column to the right if the padding is odd.
fn center(cell: &str, width: usize) -> String {
    let left = (width - cell.chars().count()).div_ceil(2);
    format!("{:left$}{cell:<rest$}", "", rest = width - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns() {
        let rows = [vec!["Path", "Size"], vec!["/", "1.0 GiB"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        let expected = "\
+------+---------+
| Path |   Size  |
+------+---------+
| /    | 1.0 GiB |
+------+---------+
";
        assert_eq!(render(&rows), expected);
    }
}
