//! Columns of text.

/// Rows under a head, each column as wide as it must be. Numbers, and what looks like one, stand at the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column: usize| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let is_number = |text: &str| text.is_empty() || text == "-" || text.starts_with(|c: char| c.is_ascii_digit());
        let right: Vec<bool> =
            (0..columns).map(|column| self.rows[1..].iter().all(|row| is_number(&cell(row, column)))).collect();
        let line = |row: &Vec<String>| {
            let padded = (0..columns).map(|column| {
                let (text, width) = (cell(row, column), widths[column]);
                if right[column] { format!("{text:>width$}") } else { format!("{text:<width$}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// A number for people: 12345678 is 12.3M.
pub fn short(number: u64) -> String {
    for (unit, name) in [(1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")] {
        if number >= unit {
            let unit = if name == "k" { 1000 } else { unit };
            return format!("{}.{}{name}", number / unit, number % unit * 10 / unit);
        }
    }
    number.to_string()
}

/// Nanoseconds as microseconds.
pub fn microseconds(ns: u64) -> String {
    format!("{}.{}", ns / 1000, ns % 1000 / 100)
}

/// A time that has passed.
pub fn ago(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["SHARD", "HOST", "N"]);
        table.row(vec!["0".into(), "a".into(), "7".into()]);
        table.row(vec!["12".into(), "bcd".into(), "1234".into()]);
        assert_eq!(table.lines(), ["SHARD  HOST     N", "    0  a        7", "   12  bcd   1234"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (short(9999).as_str(), short(12_345).as_str(), short(2_500_000).as_str()),
            ("9999", "12.3k", "2.5M")
        );
        assert_eq!((microseconds(1234).as_str(), ago(1250).as_str(), ago(3).as_str()), ("1.2", "1.2 s", "3 ms"));
    }
}
