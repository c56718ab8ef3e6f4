//! The manifest: written last, it makes a checkpoint exist.
//!
//! A directory without one is an attempt that came to nothing, whatever files are in it. The manifest names every file
//! with length and digest, and the earlier checkpoints that some chunks still lie in.

#![forbid(unsafe_code)]

use super::format::{ENDIAN_TAG, Reader, put_u16, put_u32, put_u64, put_u128};

const MAGIC: [u8; 8] = *b"RECLMAN\n";
const MAJOR: u16 = 1;
const MINOR: u16 = 0;
/// How the files came to their names: written under another one, synced, renamed, and the directory synced.
pub const SCHEME_RENAME: u32 = 1;
/// Largest manifest that is read.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;
const MEMBER_BYTES_MIN: usize = 70;
const FILE_NAME_BYTES_MAX: usize = 255;
const JOB_NAME_BYTES_MAX: usize = 255;

/// What kind of member a file is of.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A shard of a parameter server.
    Shard = 0,
    /// A rank of a job that uses regions.
    Rank = 1,
    /// The application sections that the checkpoint was asked for with.
    App = 2,
}

impl Role {
    /// The role with this number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Role> {
        [Role::Shard, Role::Rank, Role::App].into_iter().find(|role| *role as u32 == code)
    }

    /// Its name in listings and file names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Shard => "shard",
            Role::Rank => "rank",
            Role::App => "app",
        }
    }

    /// Name of the container of a member.
    #[must_use]
    pub fn file_name(self, rank: u32, world: u32) -> String {
        format!("{}-{rank}-of-{world}.rck", self.name())
    }
}

/// One file of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Of what kind of member.
    pub role: Role,
    /// Its number.
    pub rank: u32,
    /// How many of its kind there were.
    pub world: u32,
    /// Its file's length.
    pub bytes: u64,
    /// Its file's digest.
    pub digest: [u8; 32],
    /// Bytes of all chunks, those of earlier files included.
    pub state_bytes: u64,
}

impl Member {
    /// Name of its file.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.role.file_name(self.rank, self.world)
    }
}

/// What it cost, for the advice on the interval. Informative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// From the first gate closed to the last one open, as the coordinator saw it.
    pub hold_ns: u64,
    /// Longest capture of a member.
    pub capture_ns: u64,
    /// From the first word to everything durable.
    pub total_ns: u64,
}

/// A committed checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Random name of the checkpoint.
    pub checkpoint: u128,
    /// The deployment or job, as a number and as text.
    pub job: u128,
    /// The same as text.
    pub job_name: String,
    /// Its epoch: only grows, never used twice.
    pub epoch: u64,
    /// The epoch of the checkpoint that it builds on; 0: none.
    pub parent: u64,
    /// When it was committed, in microseconds since 1970. Informative.
    pub unix_us: u64,
    /// How keys find their shard; 0 city_hash, 1 simple_mod.
    pub hash_method: u32,
    /// What it cost.
    pub timing: Timing,
    /// Its files.
    pub members: Vec<Member>,
    /// Earlier epochs that chunks lie in, ascending.
    pub needs: Vec<u64>,
}

impl Manifest {
    /// The bytes of the file.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // members and epochs are thousands at most
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, ENDIAN_TAG);
        put_u16(&mut out, MAJOR);
        put_u16(&mut out, MINOR);
        put_u64(&mut out, 0); // required features
        put_u64(&mut out, 0); // optional features
        put_u32(&mut out, SCHEME_RENAME);
        put_u32(&mut out, self.hash_method);
        put_u128(&mut out, self.checkpoint);
        put_u128(&mut out, self.job);
        put_u64(&mut out, self.epoch);
        put_u64(&mut out, self.parent);
        put_u64(&mut out, self.unix_us);
        put_u64(&mut out, self.timing.hold_ns);
        put_u64(&mut out, self.timing.capture_ns);
        put_u64(&mut out, self.timing.total_ns);
        put_u16(&mut out, self.job_name.len() as u16);
        out.extend_from_slice(self.job_name.as_bytes());
        put_u32(&mut out, self.members.len() as u32);
        for member in &self.members {
            put_u32(&mut out, member.role as u32);
            put_u32(&mut out, member.rank);
            put_u32(&mut out, member.world);
            put_u64(&mut out, member.bytes);
            put_u64(&mut out, member.state_bytes);
            out.extend_from_slice(&member.digest);
            let name = member.file_name();
            put_u16(&mut out, name.len() as u16);
            out.extend_from_slice(name.as_bytes());
        }
        put_u32(&mut out, self.needs.len() as u32);
        self.needs.iter().for_each(|epoch| put_u64(&mut out, *epoch));
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        out
    }

    /// # Errors
    /// What is wrong, in words that continue "the manifest ...".
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let mut r = Reader(bytes);
        if r.array() != Some(MAGIC) {
            return Err("does not begin as one of reclane".to_owned());
        }
        if r.u32() != Some(ENDIAN_TAG) {
            return Err("has another byte order, or is damaged".to_owned());
        }
        let major = r.u16();
        if major != Some(MAJOR) {
            return Err(format!("has format version {}, this library reads {MAJOR}.x", major.unwrap_or(0)));
        }
        let minor = r.u16();
        let (body, crc) = bytes.split_at(bytes.len().saturating_sub(4));
        if crc32c::crc32c(body).to_le_bytes() != *crc {
            return Err("is damaged or cut off: its checksum does not fit".to_owned());
        }
        match r.u64() {
            Some(0) => {}
            other => return Err(format!("requires features {other:?}, which this library does not know")),
        }
        let trailing = if minor == Some(MINOR) { 4 } else { usize::MAX };
        let manifest = decode(&mut r).filter(|_| r.0.len() <= trailing).ok_or("is malformed")?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        let mut names: Vec<String> = self.members.iter().map(Member::file_name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("names a file twice".to_owned());
        }
        if self.members.iter().any(|member| member.rank >= member.world) {
            return Err("has a member whose number is not below their count".to_owned());
        }
        for role in [Role::Shard, Role::Rank] {
            let of_role = || self.members.iter().filter(move |member| member.role == role);
            if let Some(first) = of_role().next() {
                let whole = of_role().count() == first.world as usize;
                if !whole || of_role().any(|member| member.world != first.world) {
                    return Err(format!("does not name every {} once", role.name()));
                }
            }
        }
        let ascending = self.needs.windows(2).all(|pair| pair[0] < pair[1]);
        if self.members.is_empty() || !ascending || self.needs.last().is_some_and(|last| *last >= self.epoch) {
            return Err("makes no sense: no members, or needs of a later epoch".to_owned());
        }
        Ok(())
    }

    /// The member of this kind and number.
    #[must_use]
    pub fn member(&self, role: Role, rank: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.role == role && member.rank == rank)
    }

    /// How many shards took part.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.world_of(Role::Shard)
    }

    /// How many ranks took part.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.world_of(Role::Rank)
    }

    fn world_of(&self, role: Role) -> u32 {
        self.members.iter().find(|member| member.role == role).map_or(0, |member| member.world)
    }
}

fn decode(r: &mut Reader<'_>) -> Option<Manifest> {
    r.u64()?; // optional features
    if r.u32()? != SCHEME_RENAME {
        return None;
    }
    let hash_method = r.u32()?;
    let (checkpoint, job) = (r.u128()?, r.u128()?);
    let (epoch, parent, unix_us) = (r.u64()?, r.u64()?, r.u64()?);
    let timing = Timing { hold_ns: r.u64()?, capture_ns: r.u64()?, total_ns: r.u64()? };
    let job_name = r.text(JOB_NAME_BYTES_MAX)?;
    let count = r.count(MEMBER_BYTES_MIN)?;
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let (role, rank, world) = (Role::from_code(r.u32()?)?, r.u32()?, r.u32()?);
        let (bytes, state_bytes, digest) = (r.u64()?, r.u64()?, r.array()?);
        let name = r.text(FILE_NAME_BYTES_MAX)?;
        let member = Member { role, rank, world, bytes, digest, state_bytes };
        // The name follows from the rest; so nobody can name a file elsewhere.
        members.push(Some(member).filter(|member| member.file_name() == name)?);
    }
    let count = r.count(8)?;
    let needs = (0..count).map(|_| r.u64()).collect::<Option<Vec<u64>>>()?;
    Some(Manifest { checkpoint, job, job_name, epoch, parent, unix_us, hash_method, timing, members, needs })
}
