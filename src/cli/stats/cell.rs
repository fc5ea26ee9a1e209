//! Values in five columns, and their colours.

/// A colour of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Black = 30,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
    White,
}

/// Colours, or none where nobody sees them.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    pub fn new(is_on: bool) -> Self {
        Self { is_on: is_on && std::env::var_os("NO_COLOR").is_none() }
    }

    pub fn bright(self, text: &str, colour: Colour) -> String {
        self.escape(text, "1;", colour)
    }

    pub fn dark(self, text: &str, colour: Colour) -> String {
        self.escape(text, "0;", colour)
    }

    pub fn underlined(self, text: &str, colour: Colour) -> String {
        self.escape(text, "4;1;", colour)
    }

    fn escape(self, text: &str, how: &str, colour: Colour) -> String {
        if !self.is_on || text.trim().is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{how}{}m{text}\x1b[0m", colour as u8)
    }

    /// A count or a number of bytes.
    pub fn amount(self, value: f64, is_bytes: bool) -> String {
        if value <= 0.0 {
            return self.bright("   0 ", Colour::Black);
        }
        let units = [
            (if is_bytes { "B" } else { " " }, Colour::Red),
            ("K", Colour::Yellow),
            ("M", Colour::Green),
            ("G", Colour::Blue),
            ("T", Colour::Magenta),
            ("P", Colour::Cyan),
        ];
        let mut value = value.trunc();
        let mut unit = 0;
        while value >= 10_000.0 && unit + 1 < units.len() {
            value = (value / 1024.0).trunc();
            unit += 1;
        }
        let (letter, colour) = units[unit];
        self.bright(&format!("{value:4.0}"), colour) + &self.bright(letter, Colour::Black)
    }

    /// Milliseconds.
    pub fn time(self, value: f64) -> String {
        let (text, colour) = match value {
            value if value <= 0.0 => ("   0 ".to_owned(), Colour::Black),
            value if value < 10.0 => (format!("{value:4.2} "), Colour::Green),
            value if value < 100.0 => (format!("{value:4.1} "), Colour::Yellow),
            value if value < 10_000.0 => (format!("{value:4.0} "), Colour::Red),
            value => (format!("{value:5.0e}"), Colour::Magenta),
        };
        self.bright(&text, colour)
    }

    /// A share of one processor.
    pub fn share(self, value: f64) -> String {
        let percent = value * 100.0;
        let (text, colour) = match percent {
            percent if percent <= 0.0 => (" 0.0".to_owned(), Colour::White),
            percent if percent < 30.0 => (format!("{percent:4.1}"), Colour::Green),
            percent if percent < 100.0 => (format!("{percent:4.1}"), Colour::Yellow),
            percent => (format!("{percent:4.0}"), Colour::Red),
        };
        self.bright(&text, colour) + &self.bright("%", Colour::Black)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { is_on: false };

    #[test]
    fn amounts_keep_to_five_columns() {
        for (value, bytes, text) in [
            (0.0, true, "   0 "),
            (-3.0, false, "   0 "),
            (7.9, false, "   7 "),
            (9999.0, true, "9999B"),
            (10_000.0, true, "   9K"),
            (20_480.0, false, "  20K"),
            (5.0 * 1024.0 * 1024.0 * 1024.0, true, "5120M"),
            (f64::from(u32::MAX) * 1e9, true, "3814P"),
        ] {
            assert_eq!(PLAIN.amount(value, bytes), text, "{value}");
        }
    }

    #[test]
    fn times_and_shares_keep_to_five_columns() {
        let times = [0.0, 0.123, 12.34, 1234.0, 54_321.0].map(|time| PLAIN.time(time));
        assert_eq!(times, ["   0 ", "0.12 ", "12.3 ", "1234 ", "  5e4"]);
        let shares = [0.0, 0.051, 0.5, 3.0].map(|share| PLAIN.share(share));
        assert_eq!(shares, [" 0.0%", " 5.1%", "50.0%", " 300%"]);
    }

    #[test]
    fn colours_are_for_terminals() {
        let paint = Paint { is_on: true };
        assert_eq!(paint.bright("x", Colour::Red), "\x1b[1;31mx\x1b[0m");
        assert_eq!(paint.bright("  ", Colour::Red), "  ");
        assert_eq!(PLAIN.dark("x", Colour::Red), "x");
    }
}
