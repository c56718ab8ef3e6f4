//! The table of contents: sections, their chunks, and the files of earlier checkpoints that some of them lie in.

use super::{CHUNK_BYTES_MAX, NAME_BYTES_MAX, PAGE, Reader, SectionKind, page_up, put_u16, put_u32, put_u64, put_u128};
use std::collections::HashSet;

const TOC_MAGIC: u32 = u32::from_le_bytes(*b"TOC1");
/// The section may be skipped by who does not know its kind.
const FLAG_OPTIONAL: u32 = 1;
const FILE_BYTES: usize = 72;
const SECTION_BYTES_MIN: usize = 30;
const CHUNK_RECORD_BYTES: usize = 64;

/// A container of an earlier checkpoint that chunks are taken from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileRef {
    /// Its epoch.
    pub epoch: u64,
    /// Its checkpoint's random name.
    pub checkpoint: u128,
    /// Its writer.
    pub rank: u32,
    /// How many of its kind there were.
    pub world: u32,
    /// Its length.
    pub bytes: u64,
    /// Its digest.
    pub digest: [u8; 32],
}

/// A piece of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// 0: this file; else one more than the place in [`Toc::files`].
    pub file: u32,
    /// Where it begins, a multiple of [`PAGE`].
    pub at: u64,
    /// Its bytes.
    pub bytes: u32,
    /// [`super::chunk_crc`].
    pub crc: u32,
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
}

/// A section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Number of its [`SectionKind`].
    pub kind: u16,
    /// Version of what is in it.
    pub version: u16,
    /// Whether who does not know the kind may go on without it.
    pub optional: bool,
    /// Which of its kind.
    pub id: u32,
    /// Its name; may be empty.
    pub name: String,
    /// Its pieces, in order.
    pub chunks: Vec<Chunk>,
}

impl Section {
    /// Bytes of all its chunks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum()
    }

    /// What to call it in a message.
    #[must_use]
    pub fn title(&self) -> String {
        let kind = SectionKind::from_code(self.kind).map_or_else(|| format!("kind {}", self.kind), |k| k.name().into());
        match self.name.as_str() {
            "" => format!("section {kind} {}", self.id),
            name => format!("section {kind} {} '{name}'", self.id),
        }
    }
}

/// The table of contents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Toc {
    /// Files of earlier checkpoints, in no special order, each once.
    pub files: Vec<FileRef>,
    /// Sections.
    pub sections: Vec<Section>,
}

impl Toc {
    /// The bytes, without padding.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // counts are bounded by TOC_BYTES_MAX, names by NAME_BYTES_MAX
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(&mut out, TOC_MAGIC);
        put_u32(&mut out, self.files.len() as u32);
        put_u32(&mut out, self.sections.len() as u32);
        for file in &self.files {
            put_u64(&mut out, file.epoch);
            put_u128(&mut out, file.checkpoint);
            put_u32(&mut out, file.rank);
            put_u32(&mut out, file.world);
            put_u64(&mut out, file.bytes);
            out.extend_from_slice(&file.digest);
        }
        for section in &self.sections {
            put_u16(&mut out, section.kind);
            put_u16(&mut out, section.version);
            put_u32(&mut out, if section.optional { FLAG_OPTIONAL } else { 0 });
            put_u32(&mut out, section.id);
            put_u64(&mut out, section.bytes());
            put_u32(&mut out, section.chunks.len() as u32);
            put_u32(&mut out, 0);
            put_u16(&mut out, section.name.len() as u16);
            out.extend_from_slice(section.name.as_bytes());
            for chunk in &section.chunks {
                put_u32(&mut out, chunk.file);
                put_u32(&mut out, 0);
                put_u64(&mut out, chunk.at);
                put_u32(&mut out, chunk.bytes);
                put_u32(&mut out, chunk.bytes);
                put_u32(&mut out, chunk.crc);
                put_u32(&mut out, 0);
                out.extend_from_slice(&chunk.hash);
            }
        }
        out
    }

    /// Reads a table of contents whose CRC was found good. `toc_at` bounds the chunks of this file.
    ///
    /// # Errors
    /// What is wrong, in words that continue "the table of contents ...".
    pub fn decode(bytes: &[u8], toc_at: u64) -> Result<Toc, String> {
        let toc = decode(bytes).ok_or("is malformed")?;
        let mut seen = HashSet::new();
        for section in &toc.sections {
            if !section.optional && SectionKind::from_code(section.kind).is_none() {
                return Err(format!("has a required {}, which this library does not know", section.title()));
            }
            if !seen.insert((section.kind, section.id, section.name.as_str())) {
                return Err(format!("has {} twice", section.title()));
            }
            for chunk in &section.chunks {
                if chunk.file as usize > toc.files.len() {
                    return Err(format!(
                        "places a chunk of {} in file {} of {}",
                        section.title(),
                        chunk.file,
                        toc.files.len()
                    ));
                }
                if chunk.bytes as usize > CHUNK_BYTES_MAX || !chunk.at.is_multiple_of(PAGE as u64) {
                    return Err(format!("has a chunk of {} bytes at {} in {}", chunk.bytes, chunk.at, section.title()));
                }
            }
        }
        toc.check_tiling(toc_at)?;
        Ok(toc)
    }

    /// The chunks of this file fill it from the superblock to the table of contents, each byte once.
    fn check_tiling(&self, toc_at: u64) -> Result<(), String> {
        let mut own: Vec<(u64, u64)> =
            self.own_chunks().map(|chunk| (chunk.at, page_up(u64::from(chunk.bytes)))).collect();
        own.sort_unstable();
        let mut next = PAGE as u64;
        for (at, bytes) in own {
            // A chunk without bytes takes no room and may share its place.
            if at != next {
                return Err(format!("has a chunk at {at} where one must begin at {next}"));
            }
            next += bytes;
        }
        if next == toc_at { Ok(()) } else { Err(format!("accounts for {next} bytes before itself, not for {toc_at}")) }
    }

    /// Chunks that lie in this file.
    pub fn own_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.sections.iter().flat_map(|section| &section.chunks).filter(|chunk| chunk.file == 0)
    }

    /// The section of this kind and id.
    #[must_use]
    pub fn section(&self, kind: SectionKind, id: u32) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind as u16 && section.id == id)
    }

    /// Sections of this kind.
    pub fn of_kind(&self, kind: SectionKind) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.kind == kind as u16)
    }
}

fn decode(bytes: &[u8]) -> Option<Toc> {
    let mut r = Reader(bytes);
    if r.u32()? != TOC_MAGIC {
        return None;
    }
    let files = r.count(FILE_BYTES)?;
    let sections = r.count(SECTION_BYTES_MIN)?;
    let mut toc = Toc { files: Vec::with_capacity(files), sections: Vec::with_capacity(sections) };
    for _ in 0..files {
        let (epoch, checkpoint) = (r.u64()?, r.u128()?);
        let (rank, world, bytes, digest) = (r.u32()?, r.u32()?, r.u64()?, r.array()?);
        toc.files.push(FileRef { epoch, checkpoint, rank, world, bytes, digest });
    }
    for _ in 0..sections {
        let (kind, version, flags, id) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?);
        let (raw, count, zero) = (r.u64()?, r.u32()?, r.u32()?);
        let name = r.text(NAME_BYTES_MAX)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|n| n.checked_mul(CHUNK_RECORD_BYTES).is_some_and(|b| b <= r.0.len()))?;
        let mut chunks = Vec::with_capacity(count);
        for _ in 0..count {
            let (file, codec, at) = (r.u32()?, r.u32()?, r.u64()?);
            let (bytes, stored, crc, zero) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            if codec != 0 || stored != bytes || zero != 0 {
                return None;
            }
            chunks.push(Chunk { file, at, bytes, crc, hash: r.array()? });
        }
        let section = Section { kind, version, optional: flags == FLAG_OPTIONAL, id, name, chunks };
        if flags > FLAG_OPTIONAL || zero != 0 || section.bytes() != raw {
            return None;
        }
        toc.sections.push(section);
    }
    r.is_empty().then_some(toc)
}
