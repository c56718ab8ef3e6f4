//! A file of the repository, and for Rust files its code apart from its comments and strings.

use std::path::Path;

/// One file, line by line.
pub struct Source {
    /// Path from the repository's root, with forward slashes.
    pub path: String,
    /// The lines as they are.
    pub raw: Vec<String>,
    /// The lines with comments and the contents of literals blanked. Empty lines for files that are not Rust.
    pub code: Vec<String>,
    /// The comment text on each line.
    pub comments: Vec<String>,
    /// Whether a line belongs to tests.
    pub is_test: Vec<bool>,
}

impl Source {
    /// Takes a file apart.
    pub fn new(path: &str, text: &str) -> Source {
        let raw: Vec<String> = text.lines().map(str::to_owned).collect();
        let is_rust = Path::new(path).extension().is_some_and(|e| e == "rs");
        let (code, comments) = if is_rust { separate(text) } else { (String::new(), String::new()) };
        let split = |s: &str| {
            let mut lines: Vec<String> = s.lines().map(|l| l.trim_end().to_owned()).collect();
            lines.resize(raw.len(), String::new());
            lines
        };
        let (code, comments) = (split(&code), split(&comments));
        let whole = path.starts_with("tests/") || path.starts_with("benches/") || path.ends_with("/tests.rs");
        let is_test = if whole { vec![true; raw.len()] } else { test_lines(&code) };
        Source { path: path.to_owned(), raw, code, comments, is_test }
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == "rs")
    }

    /// Lines of code that ship, with their 1-based numbers.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().filter(|(i, _)| !self.is_test[*i]).map(|(i, l)| (i + 1, l.as_str()))
    }

    /// The comments that lie above the statement which contains a line (0-based), within `reach` lines of its start, and
    /// those on the lines of the statement so far.
    pub fn comments_before(&self, line: usize, reach: usize) -> String {
        let mut text = self.comments[line].clone();
        let mut at = line;
        let mut left = reach;
        while at > 0 && left > 0 {
            at -= 1;
            let code = self.code[at].trim();
            text.insert_str(0, &format!("{}\n", self.comments[at]));
            let blank = code.is_empty() && self.comments[at].trim().is_empty();
            if blank || code.ends_with([';', '}', '{']) {
                left -= 1;
            }
        }
        text
    }

    /// Whether a `// SAFETY:` comment stands directly above the statement that contains a line (0-based).
    pub fn has_safety_comment(&self, line: usize) -> bool {
        if self.comments[line].contains("SAFETY:") {
            return true;
        }
        let mut at = line;
        while at > 0 {
            at -= 1;
            if self.comments[at].contains("SAFETY:") {
                return true;
            }
            let code = self.code[at].trim();
            let blank = code.is_empty() && self.comments[at].trim().is_empty();
            if blank || code.ends_with([';', '}']) {
                return false;
            }
        }
        false
    }

    /// The functions: name, first line (1-based) and number of lines, nested ones too.
    pub fn functions(&self) -> Vec<(String, usize, usize)> {
        let mut found = Vec::new();
        for (start, line) in self.code.iter().enumerate() {
            let Some(at) = find_word(line, "fn") else { continue };
            let name: String = line[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            if name.is_empty() {
                continue;
            }
            if let Some(end) = block_end(&self.code, start, at) {
                found.push((name, start + 1, end - start + 1));
            }
        }
        found
    }
}

/// Whether a character may be part of an identifier.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands in `line` as a whole word (its ends matter only where they are word characters themselves).
pub fn find_word(line: &str, word: &str) -> Option<usize> {
    let (first, last) = (word.chars().next()?, word.chars().next_back()?);
    line.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = line[..at].chars().next_back().is_some_and(is_word) && is_word(first);
        let after = line[at + word.len()..].chars().next().is_some_and(is_word) && is_word(last);
        !before && !after
    })
}

/// The line (0-based) on which the first block after a place ends; `None` when a `;` comes first.
fn block_end(code: &[String], line: usize, column: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    for (at, text) in code.iter().enumerate().skip(line) {
        let from = if at == line { column } else { 0 };
        for c in text[from..].chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => depth += 1,
                '}' if depth == 1 => return Some(at),
                '}' => depth = depth.saturating_sub(1),
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Which lines lie in an item marked `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut marks = vec![false; code.len()];
    for (at, line) in code.iter().enumerate() {
        let marked = line.find("#[cfg(test)]").or_else(|| line.find("#[cfg(all(test"));
        let Some(column) = marked else { continue };
        let behind = column + line[column..].find(']').map_or(0, |i| i + 1);
        let end = block_end(code, at, behind).unwrap_or(at + 1);
        marks.iter_mut().take(end + 1).skip(at).for_each(|m| *m = true);
    }
    marks
}

#[derive(Clone, Copy, PartialEq)]
enum In {
    Code,
    Line,
    Block(usize),
    Text,
    RawText(usize),
}

/// Splits Rust text into code and comments, both with the lines of the original. Contents of literals are in neither.
fn separate(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut state = In::Code;
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        if c == '\n' {
            code.push('\n');
            comments.push('\n');
            if state == In::Line {
                state = In::Code;
            }
            i += 1;
            continue;
        }
        let (next, taken) = advance(&chars, i, state);
        match (state, next) {
            (In::Code, In::Code) => code.extend(&chars[i..i + taken]),
            (In::Line | In::Block(_), _) => comments.push(c),
            _ => code.push(' '),
        }
        state = next;
        i += taken;
    }
    (code, comments)
}

/// The state after the character at `i`, and how many characters belong to it.
fn advance(chars: &[char], i: usize, state: In) -> (In, usize) {
    let at = |k: usize| chars.get(i + k).copied().unwrap_or('\0');
    match state {
        In::Code => from_code(chars, i),
        In::Line => (In::Line, 1),
        In::Block(depth) => match (at(0), at(1)) {
            ('/', '*') => (In::Block(depth + 1), 2),
            ('*', '/') if depth == 1 => (In::Code, 2),
            ('*', '/') => (In::Block(depth - 1), 2),
            _ => (state, 1),
        },
        In::Text => match at(0) {
            '\\' if at(1) != '\n' => (In::Text, 2),
            '"' => (In::Code, 1),
            _ => (In::Text, 1),
        },
        In::RawText(hashes) => {
            let closes = at(0) == '"' && (1..=hashes).all(|k| at(k) == '#');
            if closes { (In::Code, 1 + hashes) } else { (state, 1) }
        }
    }
}

fn from_code(chars: &[char], i: usize) -> (In, usize) {
    let at = |k: usize| chars.get(i + k).copied().unwrap_or('\0');
    let after_word = i > 0 && is_word(chars[i - 1]);
    match at(0) {
        '/' if at(1) == '/' => (In::Line, 2),
        '/' if at(1) == '*' => (In::Block(1), 2),
        '"' => (In::Text, 1),
        'r' if !after_word || (i > 0 && chars[i - 1] == 'b') => {
            let hashes = (1..).take_while(|&k| at(k) == '#').count();
            if at(1 + hashes) == '"' { (In::RawText(hashes), 2 + hashes) } else { (In::Code, 1) }
        }
        '\'' if at(1) == '\\' => {
            let close = (3..12).find(|&k| at(k) == '\'').unwrap_or(2);
            (In::Code, close + 1)
        }
        '\'' if at(2) == '\'' => (In::Code, 3),
        _ => (In::Code, 1),
    }
}

/// All files of the repository that people write, read and taken apart.
pub fn read_tree() -> Vec<Source> {
    // Cargo runs tests in the package's own folder.
    let root = std::env::current_dir().unwrap();
    let mut paths = Vec::new();
    walk(&root, &root, &mut paths);
    paths.sort();
    let mut sources: Vec<Source> = Vec::new();
    for path in paths {
        // Binary files are not text that people write.
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        sources.push(Source::new(&path, &text));
    }
    mark_test_modules(&mut sources);
    sources
}

fn walk(root: &Path, folder: &Path, paths: &mut Vec<String>) {
    let skipped = ["target", "build", ".git", "Cargo.lock", "prefix"];
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if skipped.contains(&name.as_str()) {
            continue;
        }
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(root, &entry.path(), paths);
        } else if kind.is_file() {
            paths.push(entry.path().strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"));
        }
    }
}

/// A file declared as `#[cfg(test)] mod name;` is test code as a whole.
fn mark_test_modules(sources: &mut [Source]) {
    let mut marked = Vec::new();
    for source in sources.iter().filter(|s| s.is_rust()) {
        let folder = module_folder(&source.path);
        for (at, line) in source.code.iter().enumerate().filter(|(at, _)| source.is_test[*at]) {
            let Some(rest) = find_word(line, "mod").map(|i| line[i + 3..].trim()) else { continue };
            if let Some(name) = rest.strip_suffix(';').filter(|_| source.is_test[at]) {
                marked.push(format!("{folder}/{name}.rs"));
                marked.push(format!("{folder}/{name}/"));
            }
        }
    }
    for source in sources {
        if marked.iter().any(|m| source.path == *m || (m.ends_with('/') && source.path.starts_with(m.as_str()))) {
            source.is_test.fill(true);
        }
    }
}

/// Where the submodules of a file lie.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", name.trim_end_matches(".rs")),
    }
}

#[test]
fn comments_and_literals_are_told_from_code() {
    let text =
        "let a = \"// no\"; // yes\nlet b = r#\"x\"y\"#; /* in /* out */ still */ let c = '\"';\nfn f<'a>() {}\n";
    let source = Source::new("src/x.rs", text);
    assert_eq!(source.comments[0].trim(), "yes");
    assert!(!source.code[0].contains("no") && source.code[0].contains("let a"));
    assert!(source.code[1].contains("let c") && !source.code[1].contains("still"));
    assert!(source.code[2].contains("fn f<'a>() {}"));
}

#[test]
fn test_modules_are_found() {
    let text = "fn a() {\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    let source = Source::new("src/x.rs", text);
    assert_eq!(source.is_test, [false, false, true, true, true, true, false]);
    assert_eq!(source.functions()[0], ("a".to_owned(), 1, 2));
    assert_eq!(module_folder("src/fabric/shm.rs"), "src/fabric/shm");
}
