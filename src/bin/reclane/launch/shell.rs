//! Words and shells: splitting a command line, quoting words, the command line of ssh.

use super::refuse;
use reclane::error::Result;

/// Splits a command line into words. Blanks separate, single and double quotes group, a backslash takes the next character
/// as it is (inside single quotes it is a character like others). Nothing is expanded.
pub fn split(line: &str) -> Result<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let escaped = characters.next().ok_or_else(|| refuse(format!("{line:?} ends with a backslash")))?;
                word.get_or_insert_default().push(escaped);
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(refuse(format!("{line:?} has a quote that is not closed")));
    }
    words.extend(word);
    if words.is_empty() {
        return Err(refuse("a command line is empty"));
    }
    Ok(words)
}

/// A word as a POSIX shell must read it to get exactly this word.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The ssh that runs these words on a host.
pub fn ssh(host: &str, words: &[String], environment: &[(String, String)]) -> Vec<String> {
    // -T: no terminal, so that standard input is the plain pipe that holds the process. BatchMode: nobody answers questions.
    // ServerAlive: a host that vanished is noticed within a quarter of a minute.
    let options = ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"];
    let mut line = vec!["ssh".to_owned()];
    line.extend(options.map(str::to_owned));
    line.push("--".to_owned());
    line.push(host.to_owned());
    line.push(format!("exec sh -c {}", quoted(&held(words, environment))));
    line
}

/// A script that runs these words in a process group and stops the group when the script's standard input ends: with TERM,
/// and with KILL five seconds later. ssh passes no signals on, but its end closes the input, whatever ended it.
pub fn held(words: &[String], environment: &[(String, String)]) -> String {
    let mut command = String::new();
    if !environment.is_empty() {
        command.push_str("env ");
        for (name, value) in environment {
            command.push_str(&quoted(&format!("{name}={value}")));
            command.push(' ');
        }
    }
    command.push_str(&words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    // A background command's input is /dev/null, so the real one is kept as descriptor 3 for the guard alone. A background
    // command leads no group, so setsid makes it one without a fork, and $child stays its number. Until it has, there is no
    // such group, and the command has not begun either: then its process alone is ended.
    format!(
        "exec 3<&0 </dev/null; setsid {command} 3<&- & child=$!; \
         (cat <&3 >/dev/null; kill -TERM -$child || kill -TERM $child; sleep 5; kill -KILL -$child) >/dev/null 2>&1 & guard=$!; \
         exec 3<&-; wait $child; status=$?; kill -KILL -$child 2>/dev/null; kill $guard 2>/dev/null; exit $status"
    )
}
