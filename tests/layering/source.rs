//! The paths that each module of the tree names, resolved through imports and re-exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::lexer::{Lexed, Token, lex};

/// A module or item path below the crate root; empty is the root.
pub type Names = Vec<String>;

/// What a path refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// In this crate.
    Inside(Names),
    /// In another crate, whose name comes first.
    Foreign(Names),
}

/// A path that a file names.
#[derive(Debug)]
pub struct Mention {
    pub line: usize,
    pub target: Target,
    pub glob: bool,
}

#[derive(Default)]
struct Module {
    /// Paths as written, with the module they are written in.
    raw: Vec<Raw>,
    /// Imported names, and the path of each.
    imports: BTreeMap<String, Names>,
}

#[derive(Debug, Clone)]
struct Raw {
    line: usize,
    path: Names,
    glob: bool,
}

/// All modules, with the file that each is in.
pub struct Tree {
    modules: BTreeMap<Names, Module>,
    pub files: BTreeMap<String, BTreeSet<Names>>,
}

impl Tree {
    pub fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        collect(src, &mut files);
        let read: Vec<(String, String)> = files
            .iter()
            .map(|file| {
                let name = file.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
                (name, std::fs::read_to_string(file).unwrap())
            })
            .collect();
        assert!(!read.is_empty(), "no sources under {}", src.display());
        Self::from_files(&read)
    }

    pub fn from_files<S: AsRef<str>>(files: &[(S, S)]) -> Self {
        let mut tree = Self { modules: BTreeMap::new(), files: BTreeMap::new() };
        for (file, content) in files {
            let home = module_of(file.as_ref());
            tree.parse(file.as_ref(), home, &lex(content.as_ref()));
        }
        tree
    }

    /// Returns the paths that a module names.
    pub fn mentions(&self, module: &Names) -> Vec<Mention> {
        let raws = self.modules.get(module).map(|found| found.raw.as_slice()).unwrap_or_default();
        let mention = |raw: &Raw| Mention {
            line: raw.line,
            target: self.resolve(module, &raw.path, 0),
            glob: raw.glob,
        };
        raws.iter().map(mention).collect()
    }

    pub fn has(&self, module: &[String]) -> bool {
        self.modules.contains_key(module)
    }

    fn resolve(&self, from: &Names, path: &[String], depth: usize) -> Target {
        let mut here = from.clone();
        let mut rest = path;
        while let [first, tail @ ..] = rest {
            match first.as_str() {
                "crate" | "jfs" => here = Names::new(),
                "self" => {}
                "super" => drop(here.pop()),
                _ => break,
            }
            rest = tail;
        }
        let relative = rest.len() == path.len();
        while let [next, tail @ ..] = rest {
            let child = [here.as_slice(), std::slice::from_ref(next)].concat();
            if self.has(&child) {
                here = child;
                rest = tail;
                continue;
            }
            // `use redis::X` does not import `redis`; an import of itself would recurse for ever.
            let import = self.modules.get(&here).and_then(|module| module.imports.get(next));
            if let Some(import) = import
                && depth < 8
                && import.as_slice() != path
            {
                return self.resolve(&here, &[import.as_slice(), tail].concat(), depth + 1);
            }
            if relative && rest.len() == path.len() {
                return Target::Foreign(
                    path.iter().skip_while(|name| name.is_empty()).cloned().collect(),
                );
            }
            break;
        }
        Target::Inside([here.as_slice(), rest].concat())
    }

    fn parse(&mut self, file: &str, mut module: Names, tokens: &[Lexed]) {
        // Depth of braces, and at which depth each inline module ends.
        let (mut depth, mut inline) = (0_usize, Vec::new());
        self.enter(file, &module);
        let mut at = 0;
        while at < tokens.len() {
            let word = |i: usize| match tokens.get(i).map(|lexed| &lexed.token) {
                Some(Token::Word(word)) => Some(word.as_str()),
                _ => None,
            };
            let is =
                |i: usize, token: &Token| tokens.get(i).is_some_and(|lexed| lexed.token == *token);
            match &tokens[at].token {
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => {
                    depth = depth.saturating_sub(1);
                    if inline.last() == Some(&depth) {
                        inline.pop();
                        module.pop();
                    }
                }
                Token::Word(first) if first == "mod" && word(at + 1).is_some() => {
                    if is(at + 2, &Token::Sign('{')) {
                        inline.push(depth);
                        module.push(word(at + 1).unwrap_or_default().to_owned());
                        self.enter(file, &module);
                    }
                    at += 1;
                }
                Token::Word(first) if first == "use" => {
                    at = self.use_tree(&module, tokens, at + 1, &Names::new());
                }
                // `::redis::X` and `redis::X`, but not the middle of a path.
                Token::Word(_) | Token::Sep => {
                    at = self.inline_path(&module, tokens, at);
                    continue;
                }
                Token::Sign(_) => {}
            }
            at += 1;
        }
    }

    fn enter(&mut self, file: &str, module: &Names) {
        self.modules.entry(module.clone()).or_default();
        self.files.entry(file.to_owned()).or_default().insert(module.clone());
    }

    fn note(&mut self, module: &Names, line: usize, path: &[String], glob: bool) {
        let raw = Raw { line, path: path.to_vec(), glob };
        self.modules.entry(module.clone()).or_default().raw.push(raw);
    }

    /// Reads `a::b::c` and returns the position after it. A path that begins with `::` gets an empty
    /// first name, which no module has.
    fn inline_path(&mut self, module: &Names, tokens: &[Lexed], from: usize) -> usize {
        let mut path = Names::new();
        let mut at = from;
        while let Some(lexed) = tokens.get(at) {
            match &lexed.token {
                Token::Word(word) if at == from || tokens[at - 1].token == Token::Sep => {
                    path.push(word.clone());
                }
                Token::Sep if at == from => path.push(String::new()),
                Token::Sep if tokens[at - 1].token != Token::Sep => {}
                _ => break,
            }
            at += 1;
        }
        if path.len() > 1 {
            self.note(module, tokens[from].line, &path, false);
        }
        at
    }

    /// Reads one tree of a `use` and returns the position of the token that ends it: `;`, `,` or `}`.
    fn use_tree(&mut self, module: &Names, tokens: &[Lexed], from: usize, prefix: &Names) -> usize {
        let mut path = prefix.clone();
        let mut alias = None;
        let mut at = from;
        while let Some(Lexed { token, line }) = tokens.get(at) {
            match token {
                Token::Word(word) if word == "as" => {
                    if let Some(Token::Word(name)) = tokens.get(at + 1).map(|lexed| &lexed.token) {
                        alias = Some(name.clone());
                    }
                    at += 1;
                }
                Token::Word(word) => path.push(word.clone()),
                Token::Sep if at == from && prefix.is_empty() => path.push(String::new()),
                Token::Sep => {}
                Token::Sign('*') => {
                    self.note(module, *line, &path, true);
                    path.clear();
                }
                Token::Sign('{') => {
                    loop {
                        at = self.use_tree(module, tokens, at + 1, &path);
                        if !matches!(
                            tokens.get(at).map(|lexed| &lexed.token),
                            Some(Token::Sign(','))
                        ) {
                            break;
                        }
                    }
                    path.clear();
                }
                Token::Sign(_) => break,
            }
            at += 1;
        }
        if path.len() > prefix.len() {
            if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                path.pop();
            }
            let line = tokens[at.min(tokens.len()) - 1].line;
            self.note(module, line, &path, false);
            let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
            self.modules.entry(module.clone()).or_default().imports.insert(name, path);
        }
        at
    }
}

/// `meta/op/mod.rs` is `meta::op`; a program's file is a module of its own below `bin`.
fn module_of(file: &str) -> Names {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if stem == "lib" { Names::new() } else { stem.split('/').map(str::to_owned).collect() }
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()).collect();
    found.sort();
    for path in found {
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}
