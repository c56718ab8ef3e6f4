//! The last page of a container: that the file is whole, and where its table of contents lies.

use super::{END_MAGIC, PAGE, Reader, TOC_BYTES_MAX, is_sealed, page_up, put_u32, put_u64, seal};

/// The end of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// Bytes of the file, this page included.
    pub total_bytes: u64,
    /// Where the table of contents begins.
    pub toc_at: u64,
    /// Its bytes, without padding.
    pub toc_bytes: u64,
    /// Its CRC32C.
    pub toc_crc: u32,
    /// BLAKE3 of superblock and table of contents. As the latter has the hash of each chunk, it names the whole file.
    pub digest: [u8; 32],
}

impl Trailer {
    /// The page.
    #[must_use]
    pub fn encode(&self) -> [u8; PAGE] {
        let mut out = Vec::with_capacity(PAGE);
        out.extend_from_slice(&END_MAGIC);
        put_u64(&mut out, self.total_bytes);
        put_u64(&mut out, self.toc_at);
        put_u64(&mut out, self.toc_bytes);
        put_u32(&mut out, self.toc_crc);
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.digest);
        let mut page = [0; PAGE];
        page[..out.len()].copy_from_slice(&out);
        seal(&mut page);
        page
    }

    /// Reads the last page of a file of `length` bytes.
    ///
    /// # Errors
    /// What is wrong, in words that continue "the trailer ...".
    pub fn decode(page: &[u8; PAGE], length: u64) -> Result<Trailer, String> {
        let mut r = Reader(page);
        if r.array() != Some(END_MAGIC) {
            return Err("is missing: the file was cut off, or never finished".to_owned());
        }
        if !is_sealed(page) {
            return Err("is damaged: its checksum does not fit".to_owned());
        }
        let fields = |r: &mut Reader<'_>| {
            let (total_bytes, toc_at, toc_bytes, toc_crc) = (r.u64()?, r.u64()?, r.u64()?, r.u32()?);
            r.u32()?;
            Some(Trailer { total_bytes, toc_at, toc_bytes, toc_crc, digest: r.array()? })
        };
        let trailer = fields(&mut r).ok_or("is malformed")?;
        if trailer.total_bytes != length {
            return Err(format!("speaks of {} bytes, the file has {length}", trailer.total_bytes));
        }
        let end = trailer.toc_at.checked_add(page_up(trailer.toc_bytes)).and_then(|end| end.checked_add(PAGE as u64));
        let aligned = trailer.toc_at.is_multiple_of(PAGE as u64) && trailer.toc_at >= PAGE as u64;
        if trailer.toc_bytes > TOC_BYTES_MAX || !aligned || end != Some(length) || trailer.encode() != *page {
            return Err("makes no sense: the table of contents cannot lie where it says".to_owned());
        }
        Ok(trailer)
    }
}
