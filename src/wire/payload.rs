//! Payloads of the rare requests (INIT_TABLE, COMMAND) and sizes of the frequent ones.

use super::{InlineWords, RpcStatus};

/// Most bytes of a table or command name.
pub const NAME_BYTES_MAX: usize = 63;
/// Widest row: 64 KiB of f32.
pub const DIM_MAX: u32 = 16384;

/// The optimizer that UPDATE applies.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Optimizer {
    /// `w -= lr * g`.
    Sgd = 0,
    /// `a += g * g; w -= lr * g / (sqrt(a) + eps)`, one accumulator per element.
    Adagrad = 1,
    /// The same with one accumulator per row, fed with the mean of `g * g`.
    RowwiseAdagrad = 2,
    /// `w += g`, exact for integers: for tests that add up.
    Add = 3,
}

impl Optimizer {
    /// The optimizer with this code.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Optimizer> {
        match code {
            0 => Some(Optimizer::Sgd),
            1 => Some(Optimizer::Adagrad),
            2 => Some(Optimizer::RowwiseAdagrad),
            3 => Some(Optimizer::Add),
            _ => None,
        }
    }

    /// As C has it behind `RECLANE_OPTIMIZER_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Optimizer::Sgd => "SGD",
            Optimizer::Adagrad => "ADAGRAD",
            Optimizer::RowwiseAdagrad => "ROWWISE_ADAGRAD",
            Optimizer::Add => "ADD",
        }
    }
}

/// What a shard answers in place of a tag when the tag that an INIT_TABLE wants is another table's.
pub const TAG_TAKEN: u32 = 1 << 16;

/// What INIT_TABLE asks for. A second INIT_TABLE of the same name must agree in everything.
#[derive(Clone, PartialEq, Debug)]
pub struct TableSpec {
    /// 1..=63 bytes, UTF-8.
    pub name: String,
    /// Keys `0..num_embeddings` are expected and get dense storage; others are taken too. 0: no expectation.
    pub num_embeddings: u64,
    /// f32 elements per row, 1..=[`DIM_MAX`].
    pub dim: u32,
    /// How UPDATE changes rows.
    pub optimizer: Optimizer,
    /// Learning rate; finite and positive (ignored by [`Optimizer::Add`]).
    pub learning_rate: f32,
    /// Adagrad's epsilon; finite, not negative.
    pub epsilon: f32,
    /// Adagrad's initial accumulator; finite, not negative.
    pub initial_accumulator: f32,
}

const SPEC_FIXED_BYTES: usize = 36;
/// The fields of a spec beside its name. On the wire the first one is 1.
const FIELDS: [&str; 6] = ["num_embeddings", "dim", "optimizer", "learning_rate", "epsilon", "initial_accumulator"];
const OPTIMIZER_AT: usize = 2;
/// Where INIT_TABLE has the wanted tag, and a spec a 0.
const WANTED_AT: usize = 32;

impl TableSpec {
    /// Layout: num_embeddings u64, dim u32, optimizer u32, learning_rate f32, epsilon f32, initial_accumulator f32,
    /// name length u32, reserved u32, name.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SPEC_FIXED_BYTES + self.name.len());
        out.extend_from_slice(&self.num_embeddings.to_le_bytes());
        out.extend_from_slice(&self.dim.to_le_bytes());
        out.extend_from_slice(&(self.optimizer as u32).to_le_bytes());
        out.extend_from_slice(&self.learning_rate.to_le_bytes());
        out.extend_from_slice(&self.epsilon.to_le_bytes());
        out.extend_from_slice(&self.initial_accumulator.to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.name.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out
    }

    /// Decodes and judges.
    ///
    /// # Errors
    /// [`RpcStatus::InvalidPayload`] for anything that [`TableSpec::encode`] of a valid spec cannot produce.
    pub fn decode(bytes: &[u8]) -> Result<TableSpec, RpcStatus> {
        let word = |at: usize| -> Result<u32, RpcStatus> {
            let slice = bytes.get(at..at + 4).ok_or(RpcStatus::InvalidPayload)?;
            Ok(u32::from_le_bytes([slice[0], slice[1], slice[2], slice[3]]))
        };
        let real = |at: usize| -> Result<f32, RpcStatus> { Ok(f32::from_bits(word(at)?)) };
        let num_embeddings = (u64::from(word(4)?) << 32) | u64::from(word(0)?);
        let name_bytes = word(28)? as usize;
        if word(32)? != 0 || bytes.len() != SPEC_FIXED_BYTES + name_bytes.min(NAME_BYTES_MAX + 1) {
            return Err(RpcStatus::InvalidPayload);
        }
        let name = core::str::from_utf8(&bytes[SPEC_FIXED_BYTES..]).map_err(|_| RpcStatus::InvalidPayload)?;
        let spec = TableSpec {
            name: name.to_owned(),
            num_embeddings,
            dim: word(8)?,
            optimizer: Optimizer::from_code(word(12)?).ok_or(RpcStatus::InvalidPayload)?,
            learning_rate: real(16)?,
            epsilon: real(20)?,
            initial_accumulator: real(24)?,
        };
        spec.problem().map_or(Ok(spec), |_| Err(RpcStatus::InvalidPayload))
    }

    /// The payload of INIT_TABLE: the spec, with the tag that the client wants (0: the shard's choice) in the word that
    /// is 0 in a spec.
    #[must_use]
    pub fn encode_init(&self, wanted: u16) -> Vec<u8> {
        let mut out = self.encode();
        out[WANTED_AT..WANTED_AT + 4].copy_from_slice(&u32::from(wanted).to_le_bytes());
        out
    }

    /// Decodes and judges what [`TableSpec::encode_init`] made.
    ///
    /// # Errors
    /// As [`TableSpec::decode`].
    pub fn decode_init(bytes: &[u8]) -> Result<(TableSpec, u16), RpcStatus> {
        let mut spec = bytes.to_vec();
        let word = spec.get_mut(WANTED_AT..WANTED_AT + 4).ok_or(RpcStatus::InvalidPayload)?;
        let wanted = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        word.fill(0);
        let wanted = u16::try_from(wanted).map_err(|_| RpcStatus::InvalidPayload)?;
        Ok((TableSpec::decode(&spec)?, wanted))
    }

    /// The `attempt`th tag that a client proposes for a table of this spec, never 0. All clients propose the same ones in
    /// the same order, so a table has one tag whoever makes it and in whatever order tables are made, also on a shard that
    /// began anew. Two tables whose first proposals collide differ in the next.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // a remainder of a u16
    pub fn tag_proposal(&self, attempt: u32) -> u16 {
        // FNV-1a, then the finalizer of SplitMix64, so that every bit of the attempt counts.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.encode().into_iter().chain(attempt.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        1 + (hash % u64::from(u16::MAX)) as u16
    }

    /// The values of [`FIELDS`]; f32s as their bits.
    fn values(&self) -> [u64; FIELDS.len()] {
        // Zeroes are equal, whatever their sign.
        let real = |value: f32| u64::from((value + 0.0).to_bits());
        [
            self.num_embeddings,
            u64::from(self.dim),
            self.optimizer as u64,
            real(self.learning_rate),
            real(self.epsilon),
            real(self.initial_accumulator),
        ]
    }

    /// What a shard that has this table tells a client that asks for another spec: number and value of the first field
    /// that differs, or zeroes.
    #[must_use]
    pub fn difference(&self, asked: &TableSpec) -> InlineWords {
        let ours = self.values();
        let differs = ours.iter().zip(asked.values()).position(|(ours, theirs)| *ours != theirs);
        differs.map_or([0; 3], |at| [at as u64 + 1, ours[at], 0])
    }

    /// The words for what [`TableSpec::difference`] told to who asked for this spec. None: it told nothing.
    #[must_use]
    pub fn explain(&self, told: &InlineWords) -> Option<String> {
        self.contrast(told, "in this call", "on the shard")
    }

    /// The same between other places: `here` is where this spec is, `there` the one that was told of.
    pub(crate) fn contrast(&self, told: &InlineWords, here: &str, there: &str) -> Option<String> {
        let at = usize::try_from(told[0]).ok()?.checked_sub(1)?;
        let name = FIELDS.get(at)?;
        #[allow(clippy::cast_possible_truncation)] // 32 bits of a float or a code
        let word = |value: u64| match at {
            OPTIMIZER_AT => Optimizer::from_code(value as u32).map_or("unknown", Optimizer::name).to_owned(),
            _ if at > OPTIMIZER_AT => f32::from_bits(value as u32).to_string(),
            _ => value.to_string(),
        };
        Some(format!("{name} is {} {here} and {} {there}", word(self.values()[at]), word(told[1])))
    }

    /// What is wrong with this spec, if anything, in words for its author.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let not_negative = |x: f32| x.is_finite() && x >= 0.0;
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Some(format!("table name '{}' must have 1..={NAME_BYTES_MAX} bytes", self.name));
        }
        if self.name.chars().any(char::is_control) {
            return Some("table name must not contain control characters".to_owned());
        }
        if self.dim == 0 || self.dim > DIM_MAX {
            return Some(format!("table '{}': dim {} is outside 1..={DIM_MAX}", self.name, self.dim));
        }
        if self.optimizer != Optimizer::Add && !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return Some(format!("table '{}': learning rate {} must be positive", self.name, self.learning_rate));
        }
        if !not_negative(self.epsilon) || !not_negative(self.initial_accumulator) {
            return Some(format!("table '{}': epsilon and initial accumulator must not be negative", self.name));
        }
        None
    }
}

/// A word to the store as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Forgets all rows of all tables; tables stay.
    Clear,
    /// Asks the store to save itself under this name.
    Save(String),
    /// Asks the store to load what was saved under this name.
    Load(String),
}

impl Command {
    /// Layout: code u32, argument bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (code, argument) = match self {
            Command::Clear => (1_u32, ""),
            Command::Save(path) => (2, path.as_str()),
            Command::Load(path) => (3, path.as_str()),
        };
        let mut out = code.to_le_bytes().to_vec();
        out.extend_from_slice(argument.as_bytes());
        out
    }

    /// Decodes and judges.
    ///
    /// # Errors
    /// [`RpcStatus::InvalidPayload`] for an unknown code, a name that is not UTF-8, or one where none belongs.
    pub fn decode(bytes: &[u8]) -> Result<Command, RpcStatus> {
        let (code, argument) = bytes.split_at_checked(4).ok_or(RpcStatus::InvalidPayload)?;
        let argument = core::str::from_utf8(argument).map_err(|_| RpcStatus::InvalidPayload)?;
        match (u32::from_le_bytes([code[0], code[1], code[2], code[3]]), argument) {
            (1, "") => Ok(Command::Clear),
            (2, path) if !path.is_empty() => Ok(Command::Save(path.to_owned())),
            (3, path) if !path.is_empty() => Ok(Command::Load(path.to_owned())),
            _ => Err(RpcStatus::InvalidPayload),
        }
    }
}

/// Bytes of one key-and-row block of UPDATE.
#[must_use]
pub fn block_bytes(row_bytes: u32) -> usize {
    8 + row_bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROPOSED: [u16; 4] = [24054, 5292, 45183, 57883];

    fn spec() -> TableSpec {
        TableSpec {
            name: "users".to_owned(),
            num_embeddings: 1 << 40,
            dim: 32,
            optimizer: Optimizer::Adagrad,
            learning_rate: 0.05,
            epsilon: 1e-8,
            initial_accumulator: 0.1,
        }
    }

    #[test]
    fn spec_and_commands_round_trip() {
        assert_eq!(TableSpec::decode(&spec().encode()), Ok(spec()));
        for command in [Command::Clear, Command::Save("a/b".to_owned()), Command::Load("x".to_owned())] {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
        assert_eq!(Command::decode(&[2, 0, 0, 0]), Err(RpcStatus::InvalidPayload));
        assert_eq!(Command::decode(&[1, 0, 0]), Err(RpcStatus::InvalidPayload));
    }

    #[test]
    fn proposals_are_what_they_always_were_and_a_wanted_tag_round_trips() {
        // Part of the wire: two releases must propose the same tags.
        let proposals: Vec<u16> = (0..4).map(|attempt| spec().tag_proposal(attempt)).collect();
        assert_eq!(proposals, PROPOSED);
        assert_ne!(TableSpec { dim: 33, ..spec() }.tag_proposal(0), proposals[0]);
        for wanted in [0, 1, u16::MAX] {
            assert_eq!(TableSpec::decode_init(&spec().encode_init(wanted)), Ok((spec(), wanted)));
        }
        assert_eq!(TableSpec::decode(&spec().encode_init(1)), Err(RpcStatus::InvalidPayload));
        let mut beyond = spec().encode_init(u16::MAX);
        beyond[WANTED_AT + 2] = 1;
        assert_eq!(TableSpec::decode_init(&beyond), Err(RpcStatus::InvalidPayload));
        assert_eq!(TableSpec::decode_init(&beyond[..WANTED_AT]), Err(RpcStatus::InvalidPayload));
    }

    #[test]
    fn the_field_that_differs_is_told_with_both_values() {
        let told = |theirs: TableSpec| spec().explain(&theirs.difference(&spec()));
        assert_eq!(told(spec()), None);
        let says = |theirs: TableSpec, words: &str| assert_eq!(told(theirs).as_deref(), Some(words));
        says(
            TableSpec { num_embeddings: 7, ..spec() },
            "num_embeddings is 1099511627776 in this call and 7 on the shard",
        );
        says(TableSpec { dim: 8, epsilon: 1.0, ..spec() }, "dim is 32 in this call and 8 on the shard");
        says(
            TableSpec { optimizer: Optimizer::Sgd, ..spec() },
            "optimizer is ADAGRAD in this call and SGD on the shard",
        );
        says(TableSpec { learning_rate: 0.5, ..spec() }, "learning_rate is 0.05 in this call and 0.5 on the shard");
        says(TableSpec { epsilon: 0.0, ..spec() }, "epsilon is 0.00000001 in this call and 0 on the shard");
        let last = "initial_accumulator is 0.1 in this call and 0 on the shard";
        says(TableSpec { initial_accumulator: -0.0, ..spec() }, last);
        for nonsense in [[0, 9, 9], [7, 1, 0], [u64::MAX; 3]] {
            assert_eq!(spec().explain(&nonsense), None);
        }
    }

    #[test]
    fn bad_specs_are_named() {
        assert!(TableSpec { dim: 0, ..spec() }.problem().is_some_and(|p| p.contains("dim 0")));
        assert!(TableSpec { learning_rate: f32::NAN, ..spec() }.problem().is_some());
        assert!(TableSpec { name: "x".repeat(64), ..spec() }.problem().is_some());
    }

    proptest! {
        #[test]
        fn decoding_garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = TableSpec::decode(&bytes);
            let _ = TableSpec::decode_init(&bytes);
            let _ = Command::decode(&bytes);
        }

        #[test]
        fn what_decodes_encodes_back(mut bytes in Just(spec().encode()), at in 0_usize..41, byte in any::<u8>()) {
            bytes[at] = byte;
            if let Ok(decoded) = TableSpec::decode(&bytes) {
                prop_assert_eq!(decoded.encode(), bytes);
            }
        }
    }
}
