//! The container: one file with everything that one member of a checkpoint has to say.
//!
//! ```text
//! superblock 4 KiB | chunks, each from a multiple of 4 KiB on | table of contents, padded | trailer 4 KiB
//! ```
//!
//! Little-endian throughout, no pointers, no raw structs. A byte of the file is under a checksum or is zero padding that
//! is looked at. Truncation shows in the trailer, a flipped bit in a CRC32C, a swapped file in the superblock's names, a
//! swapped chunk in its CRC, which covers section and place.

mod bytes;
mod superblock;
mod toc;
mod trailer;

pub use bytes::{Reader, put_u16, put_u32, put_u64, put_u128};
pub use superblock::Superblock;
pub use toc::{Chunk, FileRef, Section, Toc};
pub use trailer::Trailer;

/// Alignment of everything in a container; also the size of superblock and trailer.
pub const PAGE: usize = 4096;
/// Version that this library writes. A reader refuses another major version; a minor version adds optional things.
pub const VERSION_MAJOR: u16 = 1;
/// See [`VERSION_MAJOR`].
pub const VERSION_MINOR: u16 = 0;
/// Required features that this library knows.
pub const FEATURES_KNOWN: u64 = FEATURE_INCREMENTAL;
/// Some chunks lie in files of earlier checkpoints.
pub const FEATURE_INCREMENTAL: u64 = 1;
/// Most bytes of a chunk; bounds what a reader allocates at a time.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;
/// What a writer aims at.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Most bytes of a table of contents.
pub const TOC_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a section's name.
pub const NAME_BYTES_MAX: usize = 255;
/// First bytes of a container.
pub const MAGIC: [u8; 8] = *b"RECLCKP\n";
/// First bytes of its trailer.
pub const END_MAGIC: [u8; 8] = *b"RECLEND\n";
/// Reads as another number on a machine of the other byte order.
pub const ENDIAN_TAG: u32 = 0x0a0b_0c0d;

/// What a section holds. Numbers are part of the format: never reused.
#[repr(u16)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SectionKind {
    /// Where and by what it was made, as text lines. Informative.
    Host = 1,
    /// What a device must be able to do.
    DeviceNeeds = 2,
    /// Descriptors of lanes.
    Lanes = 3,
    /// The region table.
    Regions = 4,
    /// Contents of a region; the id is the region's.
    RegionData = 5,
    /// What was executed for each client: the exactly-once windows.
    Dedupe = 6,
    /// Results that clients have not taken yet.
    ResultCache = 7,
    /// Completions that were harvested and not delivered.
    CqBacklog = 8,
    /// Requests that were accepted and not posted.
    Swq = 9,
    /// Counters.
    Counters = 10,
    /// The application's own bytes, by name.
    App = 11,
    /// For people who look into it; never fed to anything.
    Diag = 12,
    /// A table of a parameter server: its spec; the id is its tag.
    Table = 13,
    /// Rows of that table; the id is its tag.
    TableRows = 14,
}

impl SectionKind {
    /// All kinds.
    pub const ALL: [SectionKind; 14] = [
        SectionKind::Host,
        SectionKind::DeviceNeeds,
        SectionKind::Lanes,
        SectionKind::Regions,
        SectionKind::RegionData,
        SectionKind::Dedupe,
        SectionKind::ResultCache,
        SectionKind::CqBacklog,
        SectionKind::Swq,
        SectionKind::Counters,
        SectionKind::App,
        SectionKind::Diag,
        SectionKind::Table,
        SectionKind::TableRows,
    ];

    /// The kind with this number, if this library knows it.
    #[must_use]
    pub fn from_code(code: u16) -> Option<SectionKind> {
        SectionKind::ALL.into_iter().find(|kind| *kind as u16 == code)
    }

    /// Its name in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SectionKind::Host => "HOST",
            SectionKind::DeviceNeeds => "DEVICE_NEEDS",
            SectionKind::Lanes => "LANES",
            SectionKind::Regions => "REGIONS",
            SectionKind::RegionData => "REGION_DATA",
            SectionKind::Dedupe => "DEDUPE",
            SectionKind::ResultCache => "RESULT_CACHE",
            SectionKind::CqBacklog => "CQ_BACKLOG",
            SectionKind::Swq => "SWQ",
            SectionKind::Counters => "COUNTERS",
            SectionKind::App => "APP",
            SectionKind::Diag => "DIAG",
            SectionKind::Table => "TABLE",
            SectionKind::TableRows => "TABLE_ROWS",
        }
    }
}

/// The next multiple of [`PAGE`].
#[must_use]
pub fn page_up(bytes: u64) -> u64 {
    bytes.saturating_add(PAGE as u64 - 1) / PAGE as u64 * PAGE as u64
}

/// The checksum of a chunk: what it is and where it belongs, then its bytes.
#[must_use]
pub fn chunk_crc(kind: u16, id: u32, index: u32, payload: &[u8]) -> u32 {
    let mut head = [0_u8; 14];
    head[..2].copy_from_slice(&kind.to_le_bytes());
    head[2..6].copy_from_slice(&id.to_le_bytes());
    head[6..10].copy_from_slice(&index.to_le_bytes());
    head[10..].copy_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), payload)
}

/// Puts the CRC of a page's other bytes into its last four.
fn seal(page: &mut [u8; PAGE]) {
    let crc = crc32c::crc32c(&page[..PAGE - 4]);
    page[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the last four bytes are the CRC of the others.
fn is_sealed(page: &[u8; PAGE]) -> bool {
    crc32c::crc32c(&page[..PAGE - 4]).to_le_bytes() == page[PAGE - 4..]
}
