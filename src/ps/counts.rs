//! What a thread that executes requests has done.

/// What a thread has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerCounts {
    /// GET requests.
    pub gets: u64,
    /// PUT requests.
    pub puts: u64,
    /// UPDATE and UPDATE_FLAT requests.
    pub updates: u64,
    /// INIT_TABLE requests.
    pub init_tables: u64,
    /// COMMAND requests.
    pub commands: u64,
    /// Rows answered.
    pub get_rows: u64,
    /// Rows of those that had no value.
    pub missing_rows: u64,
    /// Requests that were refused as malformed.
    pub refused: u64,
    /// Requests whose handler failed.
    pub internal_errors: u64,
    /// Requests that came again and were answered from memory.
    pub repeated: u64,
    /// Requests of the refused that were meant for another shard.
    pub wrong_shard: u64,
    /// Bytes of rows answered.
    pub get_bytes: u64,
    /// Answers with rows that did not fit the answer's own cache line.
    pub get_payloads: u64,
    /// GETs whose rows were copied twice on their way.
    pub staged: u64,
    /// GETs whose rows were sent from where they lie, by the device alone.
    pub sent_in_place: u64,
    /// Keys of PUTs and UPDATEs.
    pub write_keys: u64,
}

impl HandlerCounts {
    /// Adds what another thread has done.
    pub fn add(&mut self, other: &HandlerCounts) {
        self.gets += other.gets;
        self.puts += other.puts;
        self.updates += other.updates;
        self.init_tables += other.init_tables;
        self.commands += other.commands;
        self.get_rows += other.get_rows;
        self.missing_rows += other.missing_rows;
        self.refused += other.refused;
        self.internal_errors += other.internal_errors;
        self.repeated += other.repeated;
        self.wrong_shard += other.wrong_shard;
        self.get_bytes += other.get_bytes;
        self.get_payloads += other.get_payloads;
        self.staged += other.staged;
        self.sent_in_place += other.sent_in_place;
        self.write_keys += other.write_keys;
    }
}
