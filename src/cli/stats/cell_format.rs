//! Values formatted to a width of five, and their colors.

/// A terminal color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    Black = 30,
    Red,
    Green,
    Yellow,
    Blue,
    Magenta,
    Cyan,
    White,
}

/// Whether text is colored.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    pub fn new(is_on: bool) -> Self {
        Self { is_on: is_on && std::env::var_os("NO_COLOR").is_none() }
    }

    pub fn bright(self, text: &str, color: Color) -> String {
        self.escape(text, "1;", color)
    }

    pub fn dark(self, text: &str, color: Color) -> String {
        self.escape(text, "0;", color)
    }

    pub fn underlined(self, text: &str, color: Color) -> String {
        self.escape(text, "4;1;", color)
    }

    fn escape(self, text: &str, how: &str, color: Color) -> String {
        if !self.is_on || text.trim().is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{how}{}m{text}\x1b[0m", color as u8)
    }

    /// Formats a count or a number of bytes.
    pub fn amount(self, value: f64, is_bytes: bool) -> String {
        if value <= 0.0 {
            return self.bright("   0 ", Color::Black);
        }
        let units = [
            (if is_bytes { "B" } else { " " }, Color::Red),
            ("K", Color::Yellow),
            ("M", Color::Green),
            ("G", Color::Blue),
            ("T", Color::Magenta),
            ("P", Color::Cyan),
        ];
        let mut value = value.trunc();
        let mut unit = 0;
        while value >= 10_000.0 && unit + 1 < units.len() {
            value = (value / 1024.0).trunc();
            unit += 1;
        }
        let (letter, color) = units[unit];
        self.bright(&format!("{value:4.0}"), color) + &self.bright(letter, Color::Black)
    }

    /// Formats milliseconds.
    pub fn time(self, value: f64) -> String {
        let (text, color) = match value {
            value if value <= 0.0 => ("   0 ".to_owned(), Color::Black),
            value if value < 10.0 => (format!("{value:4.2} "), Color::Green),
            value if value < 100.0 => (format!("{value:4.1} "), Color::Yellow),
            value if value < 10_000.0 => (format!("{value:4.0} "), Color::Red),
            value => (format!("{value:5.0e}"), Color::Magenta),
        };
        self.bright(&text, color)
    }

    /// Formats a share of one processor.
    pub fn share(self, value: f64) -> String {
        let percent = value * 100.0;
        let (text, color) = match percent {
            percent if percent <= 0.0 => (" 0.0".to_owned(), Color::White),
            percent if percent < 30.0 => (format!("{percent:4.1}"), Color::Green),
            percent if percent < 100.0 => (format!("{percent:4.1}"), Color::Yellow),
            percent => (format!("{percent:4.0}"), Color::Red),
        };
        self.bright(&text, color) + &self.bright("%", Color::Black)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { is_on: false };

    #[test]
    fn amounts_are_five_characters_wide() {
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
    fn times_and_shares_are_five_characters_wide() {
        let times = [0.0, 0.123, 12.34, 1234.0, 54_321.0].map(|time| PLAIN.time(time));
        assert_eq!(times, ["   0 ", "0.12 ", "12.3 ", "1234 ", "  5e4"]);
        let shares = [0.0, 0.051, 0.5, 3.0].map(|share| PLAIN.share(share));
        assert_eq!(shares, [" 0.0%", " 5.1%", "50.0%", " 300%"]);
    }

    #[test]
    fn text_is_colored_only_if_enabled() {
        let paint = Paint { is_on: true };
        assert_eq!(paint.bright("x", Color::Red), "\x1b[1;31mx\x1b[0m");
        assert_eq!(paint.bright("  ", Color::Red), "  ");
        assert_eq!(PLAIN.dark("x", Color::Red), "x");
    }
}
