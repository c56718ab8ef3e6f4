//! SAVE and LOAD: what comes back, and what is refused.

use super::*;
use crate::sync::AtomicU32;
use std::fs;

/// A directory of its own for each test, gone afterwards.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("reclane-saved-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub(super) fn options(&self) -> StoreOptions {
        StoreOptions { checkpoint_directory: Some(self.0.clone()), ..options() }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const TAGS: [TableTag; 4] = [TableTag(0), TableTag(1), TableTag(2), TableTag(3)];

/// A store with all kinds of tables and `keys` rows in each.
fn filled(options: StoreOptions, keys: &[u64]) -> BuiltinStore {
    let store = BuiltinStore::new(options).unwrap();
    for (i, optimizer) in [Optimizer::Adagrad, Optimizer::RowwiseAdagrad, Optimizer::Sgd].into_iter().enumerate() {
        store.init_table(0, &spec(&format!("t{i}"), 4 + i as u32, [0, 50, 9][i], optimizer)).unwrap();
    }
    change(&store, keys);
    store
}

fn change(store: &BuiltinStore, keys: &[u64]) {
    for tag in TAGS {
        let dim = store.shape(tag).unwrap().dim as usize;
        put(store, 0, tag, keys, &numbers(keys.len() * dim, 5)).unwrap();
        update(store, 0, tag, keys, &numbers(keys.len() * dim, 6)).unwrap();
    }
}

fn contents(store: &BuiltinStore, keys: &[u64]) -> Vec<(Vec<u32>, u32)> {
    TAGS.iter()
        .map(|tag| get(store, 0, *tag, keys).unwrap())
        .map(|(rows, missing)| (rows.iter().map(|x| x.to_bits()).collect(), missing))
        .collect()
}

#[test]
fn what_was_saved_comes_back_with_its_optimizer_state() {
    for (hash_method, num_shards, workers) in
        [(HashMethod::SimpleMod, 1, 1), (HashMethod::CityHash, 2, 2), (HashMethod::SimpleMod, 3, 1)]
    {
        let directory = Directory::new();
        let options = StoreOptions { hash_method, num_shards, workers, ..directory.options() };
        let router = Router::new(hash_method, num_shards);
        let all: Vec<u64> = (0..30_000).chain([u64::MAX - 2]).filter(|key| router.shard_of(*key) == 0).collect();
        let (keys, others) = all.split_at(all.len() / 2);
        let store = filled(options.clone(), keys);
        let before = contents(&store, &all);
        store.command(0, &Command::Save("a/b".to_owned())).unwrap();
        // One more round of updates shows whether accumulators came back.
        change(&store, others);
        keys.chunks(100).for_each(|keys| {
            let rows = vec![1.0; keys.len() * 4];
            // SAFETY: `rows` has a row for each key.
            unsafe { store.update(0, TableTag(1), keys, rows_in(&rows, 4), false).unwrap() };
        });
        let after = contents(&store, keys);
        let fresh = BuiltinStore::new(options).unwrap();
        for loaded in [&store, &fresh] {
            loaded.command(0, &Command::Load("a/b".to_owned())).unwrap();
            assert!(contents(loaded, &all) == before);
            update(loaded, 0, TableTag(1), keys, &vec![1.0; keys.len() * 4]).unwrap();
            assert!(contents(loaded, keys) == after);
        }
        assert_eq!(fresh.init_table(0, &spec("t1", 5, 50, Optimizer::RowwiseAdagrad)), Ok(TableTag(2)));
        assert_eq!(fresh.init_table(0, &spec("new", 5, 50, Optimizer::Add)), Ok(TableTag(4)));
        let files = fs::read_dir(directory.0.join("a")).unwrap().count();
        assert_eq!(files, 1, "no unfinished file is left behind");
    }
}

#[test]
fn every_damaged_byte_and_every_shorter_or_longer_file_is_refused() {
    let directory = Directory::new();
    let keys = [0, 1, 2, 60, u64::MAX];
    let store = filled(directory.options(), &keys);
    store.save("x").unwrap();
    let path = directory.0.join("x.0-of-1");
    let good = fs::read(&path).unwrap();
    change(&store, &[1, 5]);
    let before = contents(&store, &[0, 1, 2, 5, 60, u64::MAX]);
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        let error = store.load(0, "x").expect_err(what);
        assert_eq!(error.status, Status::InvalidArgument, "{what}: {error}");
        assert!(error.message.contains("x.0-of-1"), "{what}: {error}");
        assert!(contents(&store, &[0, 1, 2, 5, 60, u64::MAX]) == before, "{what} changed something");
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        refused(&bad, &format!("byte {at} flipped"));
    }
    (0..good.len()).for_each(|len| refused(&good[..len], &format!("cut to {len}")));
    refused(&[good.as_slice(), &[0]].concat(), "one byte longer");
    refused(b"something else altogether, and long enough for a head of sixty-four bytes", "foreign");
    fs::write(&path, &good).unwrap();
    assert_eq!(store.command(0, &Command::Load("x".to_owned())), Ok(()));
    assert!(contents(&store, &[0, 1, 2, 5, 60, u64::MAX]) != before);
}

#[test]
fn a_file_of_another_shard_or_with_other_tables_is_refused() {
    let directory = Directory::new();
    let store = filled(directory.options(), &[2, 4]);
    store.save("x").unwrap();
    let file = fs::read(directory.0.join("x.0-of-1")).unwrap();
    fs::write(directory.0.join("x.0-of-2"), file).unwrap();
    let message = |store: &BuiltinStore| store.load(0, "x").unwrap_err().message;
    let two = BuiltinStore::new(StoreOptions { num_shards: 2, ..directory.options() }).unwrap();
    assert!(message(&two).contains("shard 0 of 1"), "{}", message(&two));
    let wider = BuiltinStore::new(StoreOptions { value_size: 32, ..directory.options() }).unwrap();
    let differs = "table 'default': dim is 4 there and 8 on this server";
    assert!(message(&wider).contains(differs), "{}", message(&wider));
    let none = BuiltinStore::new(StoreOptions { value_size: 0, ..directory.options() }).unwrap();
    assert!(message(&none).contains("default table"), "{}", message(&none));
    let other = BuiltinStore::new(directory.options()).unwrap();
    other.init_table(0, &spec("t1", 6, 50, Optimizer::RowwiseAdagrad)).unwrap();
    let differs = "table 't1': dim is 5 there and 6 on this server";
    assert!(message(&other).contains(differs), "{}", message(&other));
    assert_eq!(other.shape(TableTag(2)), None, "no table was made by a refused load");
}

#[test]
fn a_file_finds_its_tables_by_name_where_tags_are_others() {
    let directory = Directory::new();
    let keys = [2, 4, 60];
    let saved = filled(directory.options(), &keys);
    saved.save("x").unwrap();
    let store = BuiltinStore::new(directory.options()).unwrap();
    let t1 = spec("t1", 5, 50, Optimizer::RowwiseAdagrad);
    // In the file this table has tag 2, and tag 1 is another's.
    assert_eq!(store.init_table_as(0, &t1, TableTag(1)), Ok(Some(TableTag(1))));
    store.load(0, "x").unwrap();
    assert!(get(&store, 0, TableTag(1), &keys).unwrap() == get(&saved, 0, TableTag(2), &keys).unwrap());
    let t0 = store.init_table(0, &spec("t0", 4, 0, Optimizer::Adagrad)).unwrap();
    assert!(get(&store, 0, t0, &keys).unwrap() == get(&saved, 0, TableTag(1), &keys).unwrap());
    assert_eq!(store.init_table(0, &spec("t2", 6, 9, Optimizer::Sgd)), Ok(TableTag(3)), "the file's tag was free");
    // A file that a store with several tags for a table writes can be read again.
    assert_eq!(store.init_table_as(0, &t1, TableTag(40)), Ok(Some(TableTag(40))));
    store.save("y").unwrap();
    let again = BuiltinStore::new(directory.options()).unwrap();
    again.load(0, "y").unwrap();
    assert!(get(&again, 0, TableTag(1), &keys).unwrap() == get(&saved, 0, TableTag(2), &keys).unwrap());
}

#[test]
fn names_that_lead_elsewhere_and_stores_without_a_directory_are_refused() {
    let directory = Directory::new();
    let store = filled(directory.options(), &[1]);
    for name in ["/tmp/x", "../x", "a/../../x", "a/..", ".", "", "a/", "./a", "a\0b"] {
        assert_eq!(store.save(name).unwrap_err().status, Status::InvalidArgument, "{name:?}");
        assert_eq!(store.load(0, name).unwrap_err().status, Status::InvalidArgument, "{name:?}");
    }
    assert_eq!(store.load(0, "absent").unwrap_err().status, Status::OsError);
    let bare = BuiltinStore::new(options()).unwrap();
    assert_eq!(bare.save("x").unwrap_err().status, Status::Unsupported);
    assert_eq!(bare.command(0, &Command::Load("x".to_owned())), Err(RpcStatus::InternalError));
}

#[test]
fn a_hook_takes_save_and_load_and_its_failure_is_answered() {
    let hook: CommandHook = Box::new(|_, command| match command {
        Command::Save(name) if name == "good" => Ok(()),
        other => Err(Error::new(Status::Unsupported, format!("{other:?}"))),
    });
    let store = BuiltinStore::new(options()).unwrap().with_hook(hook);
    assert_eq!(store.command(0, &Command::Save("good".to_owned())), Ok(()));
    assert_eq!(store.command(0, &Command::Load("good".to_owned())), Err(RpcStatus::InternalError));
    assert_eq!(store.command(0, &Command::Clear), Ok(()));
}
