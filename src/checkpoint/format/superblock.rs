//! The first page of a container: what it is and whose.

use super::{
    ENDIAN_TAG, FEATURES_KNOWN, MAGIC, PAGE, Reader, VERSION_MAJOR, is_sealed, put_u16, put_u32, put_u64, put_u128,
    seal,
};

/// Whose container it is. What a restore compares with the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Minor version of the writer.
    pub minor: u16,
    /// Features that a reader must know.
    pub required: u64,
    /// Features that a reader may ignore.
    pub optional: u64,
    /// Random name of the checkpoint, the same in all its files.
    pub checkpoint: u128,
    /// The deployment or job.
    pub job: u128,
    /// The checkpoint's epoch.
    pub epoch: u64,
    /// What kind of member wrote it, as [`crate::checkpoint::Role`] numbers them.
    pub role: u32,
    /// Its number.
    pub rank: u32,
    /// How many of its kind there were.
    pub world: u32,
    /// The process that wrote it.
    pub instance: u128,
    /// When, in microseconds since 1970. Informative.
    pub unix_us: u64,
}

impl Superblock {
    /// The page.
    #[must_use]
    pub fn encode(&self) -> [u8; PAGE] {
        let mut out = Vec::with_capacity(PAGE);
        out.extend_from_slice(&MAGIC);
        put_u32(&mut out, ENDIAN_TAG);
        put_u16(&mut out, VERSION_MAJOR);
        put_u16(&mut out, self.minor);
        put_u64(&mut out, self.required);
        put_u64(&mut out, self.optional);
        put_u128(&mut out, self.checkpoint);
        put_u128(&mut out, self.job);
        put_u64(&mut out, self.epoch);
        put_u32(&mut out, self.rank);
        put_u32(&mut out, self.world);
        put_u128(&mut out, self.instance);
        put_u64(&mut out, self.unix_us);
        put_u32(&mut out, self.role);
        let mut page = [0; PAGE];
        page[..out.len()].copy_from_slice(&out);
        seal(&mut page);
        page
    }

    /// # Errors
    /// What is wrong, in words that continue "the superblock ...".
    pub fn decode(page: &[u8; PAGE]) -> Result<Superblock, String> {
        let mut r = Reader(page);
        let malformed = || "is malformed".to_owned();
        if r.array() != Some(MAGIC) {
            return Err("does not begin a reclane checkpoint".to_owned());
        }
        match r.u32() {
            Some(ENDIAN_TAG) => {}
            Some(tag) if tag.swap_bytes() == ENDIAN_TAG => {
                return Err("was written in big-endian byte order; containers are little-endian".to_owned());
            }
            _ => return Err("has no byte order mark: it is damaged".to_owned()),
        }
        let (major, minor) = (r.u16().ok_or_else(malformed)?, r.u16().ok_or_else(malformed)?);
        if major != VERSION_MAJOR {
            return Err(format!("has format version {major}.{minor}, this library reads {VERSION_MAJOR}.x"));
        }
        if !is_sealed(page) {
            return Err("is damaged: its checksum does not fit".to_owned());
        }
        let fields = |r: &mut Reader<'_>| {
            let (required, optional) = (r.u64()?, r.u64()?);
            let (checkpoint, job, epoch) = (r.u128()?, r.u128()?, r.u64()?);
            let (rank, world, instance) = (r.u32()?, r.u32()?, r.u128()?);
            let (unix_us, role) = (r.u64()?, r.u32()?);
            Some(Superblock { minor, required, optional, checkpoint, job, epoch, role, rank, world, instance, unix_us })
        };
        let block = fields(&mut r).ok_or_else(malformed)?;
        let unknown = block.required & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(format!("requires features {unknown:#x}, which this library does not know"));
        }
        // A newer minor version may use bytes that this one leaves zero.
        if minor == super::VERSION_MINOR && block.encode() != *page {
            return Err("has bytes that must be zero and are not".to_owned());
        }
        Ok(block)
    }
}
