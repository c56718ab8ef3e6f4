//! Reading what the kernel tells in files, or a copy of that: bounded, without waiting, and believing nothing.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes read of one file.
const BYTES_MAX: u64 = 64 << 10;
/// Most entries read of one directory.
const ENTRIES_MAX: usize = 4096;

/// The root of `/sys`, `/proc` and `/dev`.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    /// Whether it is this host's own, so that what is read is true now.
    pub live: bool,
}

impl Tree {
    /// This host, or a copy of another one's files.
    pub fn new(root: Option<&Path>) -> Tree {
        Tree { root: root.unwrap_or(Path::new("/")).to_owned(), live: root.is_none() }
    }

    /// Where a file lies; `path` is written without a leading slash.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether there is such a thing.
    pub fn exists(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// The text of a file, without the white space at its ends; None when it is no file, or cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let place = self.place(path);
        // A pipe or a device in its place must not make us wait.
        let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(place).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The first line of a file, as far as it fits a message.
    pub fn line(&self, path: &str) -> Option<String> {
        const CHARS_MAX: usize = 80;
        Some(self.text(path)?.lines().next()?.chars().take(CHARS_MAX).collect())
    }

    /// A file that holds a name of the kernel's: one that may stand in a command.
    pub fn name(&self, path: &str) -> Option<String> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-@:".contains(c);
        self.line(path).filter(|name| !name.is_empty() && name.chars().all(legal))
    }

    /// A file that holds one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted, numbers by their value; empty when there is none.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.place(path)) else { return Vec::new() };
        let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_by_cached_key(|name| (name.parse::<u64>().unwrap_or(u64::MAX), name.clone()));
        names
    }

    /// The names in a directory that are numbers.
    pub fn numbers(&self, path: &str) -> Vec<u32> {
        self.names(path).iter().filter_map(|name| name.parse().ok()).collect()
    }
}

/// The value behind `key` in lines of `key: value` or `key value`.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_start_matches(':').trim()))
}

/// The word in square brackets, as sysfs marks a choice.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, behind) = text.split_once('[')?;
    behind.split_once(']').map(|(word, _)| word)
}
