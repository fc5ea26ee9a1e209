//! Tokens of Rust source, without comments, strings and numbers.

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    Word(String),
    /// `::`
    Sep,
    Sign(char),
}

pub struct Lexed {
    pub token: Token,
    pub line: usize,
}

pub fn lex(source: &str) -> Vec<Lexed> {
    Lexer { rest: source.chars().collect(), at: 0, line: 1, out: Vec::new() }.run()
}

struct Lexer {
    rest: Vec<char>,
    at: usize,
    line: usize,
    out: Vec<Lexed>,
}

impl Lexer {
    fn run(mut self) -> Vec<Lexed> {
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('/')) => self.skip_while(|c| c != '\n'),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                (':', Some(':')) => {
                    self.push(Token::Sep);
                    self.skip(2);
                }
                _ if c.is_ascii_digit() => self.skip_while(|c| c.is_alphanumeric() || c == '_'),
                _ if c.is_alphanumeric() || c == '_' => self.word(),
                _ => {
                    if !c.is_whitespace() {
                        self.push(Token::Sign(c));
                    }
                    self.skip(1);
                }
            }
        }
        self.out
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn push(&mut self, token: Token) {
        self.out.push(Lexed { token, line: self.line });
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == Some('\n') {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn skip_while(&mut self, keep: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&keep) {
            self.skip(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.skip(2);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.skip(2);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.skip(1),
                (None, _) => return,
            }
        }
    }

    fn string(&mut self) {
        self.skip(1);
        while let Some(c) = self.peek(0) {
            self.skip(if c == '\\' { 2 } else { 1 });
            if c == '"' {
                return;
            }
        }
    }

    /// Skips a raw string, from its first `#` or quote on.
    fn raw_string(&mut self) {
        let from = self.at;
        self.skip_while(|c| c == '#');
        let hashes = self.at - from;
        self.skip(1);
        while let Some(c) = self.peek(0) {
            self.skip(1);
            if c == '"' && (0..hashes).all(|i| self.peek(i) == Some('#')) {
                self.skip(hashes);
                return;
            }
        }
    }

    /// Skips a character literal or a lifetime.
    fn quote(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                self.skip(3);
                self.skip_while(|c| c != '\'');
                self.skip(1);
            }
            (Some(_), Some('\'')) => self.skip(3),
            _ => {
                self.skip(1);
                self.skip_while(|c| c.is_alphanumeric() || c == '_');
            }
        }
    }

    fn word(&mut self) {
        let from = self.at;
        self.skip_while(|c| c.is_alphanumeric() || c == '_');
        let word: String = self.rest[from..self.at].iter().collect();
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        match (self.peek(0), self.peek(1)) {
            (Some('"'), _) | (Some('#'), Some('"' | '#')) if raw => self.raw_string(),
            // `r#type`: the word follows.
            (Some('#'), Some(_)) if word == "r" => self.skip(1),
            (Some('"'), _) if matches!(word.as_str(), "b" | "c") => self.string(),
            _ => self.push(Token::Word(word)),
        }
    }
}
