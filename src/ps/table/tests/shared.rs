//! Rows read by those who only have the file: the same rows, whole, recent, and nothing where nobody serves.

use super::*;
use crate::sync::{AtomicBool, AtomicU32};

const DIM: usize = 40;
const KEYS: u64 = 300;

fn store(changes: StoreOptions) -> BuiltinStore {
    BuiltinStore::new(StoreOptions { shared: true, ..changes }).unwrap()
}

fn view(store: &BuiltinStore) -> View {
    let file = store.shared().expect("shared rows").file();
    // SAFETY: mapped as long as the store, which outlives the view in every test.
    unsafe { View::new(file.base().as_ptr(), file.bytes()) }.expect("a file of rows")
}

/// The rows, or None where the view has nothing to say.
fn read(store: &BuiltinStore, view: View, tag: TableTag, keys: &[u64], dim: usize) -> Option<Vec<f32>> {
    let mut out = vec![f32::NAN; keys.len() * dim + 1];
    let (router, shard) = (&store.router, store.options.shard);
    let wanted =
        Wanted { router, shard, table: tag, keys, row_bytes: dim * 4, out: out.as_mut_ptr().cast(), positions: None };
    // SAFETY: `out` has room for all rows.
    let done = unsafe { view.read(&wanted, &mut Calm::default()) };
    assert!(out.pop().is_some_and(f32::is_nan), "written beyond the last row");
    done.then_some(out)
}

#[test]
fn a_view_reads_what_the_store_has() {
    for (method, num_shards, workers) in
        [(HashMethod::SimpleMod, 1, 1), (HashMethod::SimpleMod, 3, 2), (HashMethod::CityHash, 3, 1)]
    {
        let store =
            store(StoreOptions { hash_method: method, num_shards, workers, shard: num_shards - 1, ..options() });
        let shared = store.shared().unwrap();
        let _serving = shared.serve().expect("nobody serves yet");
        let view = view(&store);
        for dim in [1_usize, 3, 16, 32, 40] {
            let tag = store.init_table(0, &spec(&format!("t{dim}"), dim as u32, KEYS, Optimizer::Adagrad)).unwrap();
            let mine: Vec<u64> = (0..KEYS).filter(|key| store.router.shard_of(*key) == store.options.shard).collect();
            let written: Vec<u64> = mine.iter().copied().filter(|key| key % 3 != 0).collect();
            let rows: Vec<f32> = (0..written.len() * dim).map(|i| i as f32 + 0.5).collect();
            put(&store, 0, tag, &written, &rows).unwrap();
            update(&store, 0, tag, &written[..written.len() / 2], &rows[..written.len() / 2 * dim]).unwrap();
            for keys in [&mine[..], &mine[..1], &[]] {
                let expected = get(&store, 0, tag, keys).unwrap().0;
                assert_eq!(read(&store, view, tag, keys, dim), Some(expected.clone()), "{method:?} {dim}");
                let (mut out, last) = (vec![f32::NAN; expected.len()], keys.len() as u32);
                let backwards: Vec<u32> = (0..last).rev().collect();
                let (router, shard, positions) = (&store.router, store.options.shard, Some(&backwards[..]));
                let (row_bytes, place) = (dim * 4, out.as_mut_ptr().cast());
                let wanted = Wanted { router, shard, table: tag, keys, row_bytes, out: place, positions };
                // SAFETY: `out` has room for all rows.
                assert!(unsafe { view.read(&wanted, &mut Calm::default()) });
                let turned: Vec<f32> = out.chunks(dim).rev().flatten().copied().collect();
                assert_eq!(turned, expected, "{method:?} {dim}");
            }
            assert_eq!(read(&store, view, tag, &mine[..2], dim + 1), None, "another width");
        }
        // Keys that no number leads to, in a table with numbers and in one without; the indexes grow on the way.
        let mine = |first: u64| (first..).filter(|key| store.router.shard_of(*key) == store.options.shard);
        for (name, expected) in [("far", KEYS), ("hashed", 0)] {
            let tag = store.init_table(0, &spec(name, 7, expected, Optimizer::Adagrad)).unwrap();
            assert_eq!(
                read(&store, view, tag, &mine(KEYS).take(3).collect::<Vec<_>>(), 7),
                Some(vec![0.0; 21]),
                "{name}"
            );
            for count in [1, 60, 5000] {
                let keys: Vec<u64> = mine(KEYS).step_by(3).take(count).collect();
                let rows: Vec<f32> = (0..count * 7).map(|i| i as f32).collect();
                put(&store, 0, tag, &keys, &rows).unwrap();
                assert_eq!(read(&store, view, tag, &keys, 7), Some(rows), "{name} {count}");
                let all: Vec<u64> = mine(0).take(count).collect();
                assert_eq!(
                    read(&store, view, tag, &all, 7),
                    Some(get(&store, 0, tag, &all).unwrap().0),
                    "{name} {count}"
                );
                assert_eq!(read(&store, view, tag, &keys[..1], 7), Some(get(&store, 0, tag, &keys[..1]).unwrap().0));
            }
        }
        assert_eq!(read(&store, view, TableTag(999), &[], 4), None);
    }
}

#[test]
fn where_nobody_serves_nothing_is_read() {
    let store = store(options());
    let tag = store.init_table(0, &spec("t", 4, KEYS, Optimizer::Sgd)).unwrap();
    put(&store, 0, tag, &[1], &[1.0; 4]).unwrap();
    let (view, shared) = (view(&store), store.shared().unwrap());
    let there = || read(&store, view, tag, &[1], 4).is_some();
    assert!(!there(), "not served yet");
    let serving = shared.serve().expect("nobody serves yet");
    assert!(there());
    assert!(shared.serve().is_none(), "it is served already");
    drop(serving);
    assert!(!there(), "not served any more");
    // A thread that ends without a word, as one of a killed process does: the kernel says so.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _kept = core::mem::ManuallyDrop::new(shared.serve().expect("nobody serves"));
            assert!(there());
        });
        thread.join().unwrap();
        // SAFETY: the share that the thread took with it and never gave back.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(shared)) };
    });
    assert!(!there(), "who served it is gone");
}

#[test]
fn a_view_reads_nothing_while_all_rows_change() {
    let store = store(options());
    let tag = store.init_table(0, &spec("t", 4, KEYS, Optimizer::Sgd)).unwrap();
    put(&store, 0, tag, &[1], &[1.0; 4]).unwrap();
    let (view, shared) = (view(&store), store.shared().unwrap());
    let _serving = shared.serve().unwrap();
    let changing = shared.change_all();
    assert_eq!(read(&store, view, tag, &[1], 4), None);
    drop(changing);
    assert_eq!(read(&store, view, tag, &[1], 4), Some(vec![1.0; 4]));
    store.clear(0).unwrap();
    assert_eq!(read(&store, view, tag, &[1], 4), Some(vec![0.0; 4]));
}

/// One writer, as with one poll thread; its rows have equal elements, which grow, and after some rounds are cleared.
#[test]
fn rows_are_whole_and_never_older_than_what_was_answered() {
    whole_and_recent(KEYS);
}

/// The index grows on the way, again and again.
#[test]
fn rows_of_hashed_keys_are_whole_and_never_older_than_what_was_answered() {
    whole_and_recent(0);
}

fn whole_and_recent(expected: u64) {
    let store = store(options());
    let tag = store.init_table(0, &spec("t", DIM as u32, expected, Optimizer::Add)).unwrap();
    let _serving = store.shared().unwrap().serve().unwrap();
    // The last round whose PUT has returned; odd rounds of a thousand begin with a CLEAR.
    let (answered, cleared, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let keys: Vec<u64> = (0..KEYS).collect();
    put(&store, 0, tag, &keys, &vec![1.0; keys.len() * DIM]).unwrap();
    std::thread::scope(|scope| {
        let (store, keys) = (&store, &keys);
        let (answered, cleared, done) = (&answered, &cleared, &done);
        let view = view(store);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let (mut good, mut seen) = (0_u64, 0_u64);
                    while !done.load(Ordering::Relaxed) || good == 0 {
                        let clears = cleared.load(Ordering::Acquire);
                        let least = answered.load(Ordering::Acquire);
                        let Some(rows) = read(store, view, tag, keys, DIM) else { continue };
                        let calm = clears.is_multiple_of(2) && cleared.load(Ordering::Acquire) == clears;
                        for row in rows.chunks(DIM) {
                            assert!(row.iter().all(|x| x.to_bits() == row[0].to_bits()), "a torn row: {row:?}");
                            assert!(!calm || f64::from(row[0]) >= f64::from(least), "{} is older than {least}", row[0]);
                        }
                        good += 1;
                        seen += u64::from(calm);
                    }
                    (good, seen)
                })
            })
            .collect();
        let mut rows = vec![0.0; keys.len() * DIM];
        for round in 2..4000_u32 {
            if round % 500 == 0 {
                cleared.fetch_add(1, Ordering::Release);
                store.clear(0).unwrap();
            }
            rows.fill(round as f32);
            put(store, 0, tag, keys, &rows).unwrap();
            if expected == 0 && round % 16 == 0 {
                let others: Vec<u64> = (0..64).map(|i| 1_000_000 + u64::from(round) * 64 + i).collect();
                put(store, 0, tag, &others, &vec![0.5; others.len() * DIM]).unwrap();
            }
            answered.store(round, Ordering::Release);
            if round % 500 == 0 {
                cleared.fetch_add(1, Ordering::Release);
            }
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            let (good, seen) = reader.join().unwrap();
            assert!(good > 0 && seen > 0, "nothing was read");
        }
    });
}

#[test]
fn what_is_withdrawn_is_read_by_nobody() {
    let store = store(options());
    let tag = store.init_table(0, &spec("t", 4, KEYS, Optimizer::Sgd)).unwrap();
    let (view, shared) = (view(&store), store.shared().unwrap());
    let _serving = shared.serve().unwrap();
    assert!(read(&store, view, tag, &[1], 4).is_some());
    shared.withdraw();
    assert_eq!(read(&store, view, tag, &[1], 4), None);
}

/// LOAD writes rows without their locks.
#[test]
fn rows_are_whole_while_a_file_is_loaded() {
    let directory = saved::Directory::new();
    let store = store(directory.options());
    let tag = store.init_table(0, &spec("t", DIM as u32, KEYS, Optimizer::Sgd)).unwrap();
    let _serving = store.shared().unwrap().serve().unwrap();
    let keys: Vec<u64> = (0..KEYS).collect();
    for version in [1.0, 2.0] {
        put(&store, 0, tag, &keys, &vec![version; keys.len() * DIM]).unwrap();
        store.save(&format!("v{version}")).unwrap();
    }
    let (store, view, keys, done) = (&store, view(&store), &keys, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(move || {
                let mut seen = 0_u64;
                while !done.load(Ordering::Relaxed) || seen == 0 {
                    let Some(rows) = read(store, view, tag, keys, DIM) else { continue };
                    assert!(rows.iter().all(|x| x.to_bits() == rows[0].to_bits()), "of two files: {rows:?}");
                    assert!(rows[0] > 0.0, "rows that no file has");
                    seen += 1;
                }
            })
        });
        for round in 0..300 {
            store.load(0, if round % 2 == 0 { "v1" } else { "v2" }).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// A file that belongs to somebody who lies. What comes is nonsense or nothing, and never a touch outside the file.
#[test]
fn a_directory_full_of_lies_leads_nowhere_outside() {
    let store = store(options());
    let tag = store.init_table(0, &spec("t", 4, KEYS, Optimizer::Sgd)).unwrap();
    let far: Vec<u64> = (KEYS..KEYS + 100).collect();
    put(&store, 0, tag, &far, &[1.0; 400]).unwrap();
    let shared = store.shared().unwrap();
    let _serving = shared.serve().unwrap();
    let file = shared.file();
    // The piece that the directory and the table lie in is all there is: one page more is not mapped.
    let bytes = 16 << 20;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let page = unsafe {
        libc::mmap(core::ptr::null_mut(), bytes + 4096, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    let copy: *mut u8 = page.cast();
    // SAFETY: the first part of the mapping is made usable and filled from the file, which is longer.
    unsafe {
        assert_eq!(libc::mprotect(page, bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
        core::ptr::copy_nonoverlapping(file.base().as_ptr(), copy, bytes);
    }
    // SAFETY: mapped until the end of the test.
    let view = unsafe { View::new(copy, bytes) }.expect("a file of rows");
    let entry = copy.wrapping_add(36_864 + usize::from(tag.0) * 64).cast::<u64>();
    // SAFETY: the entry lies in the copy.
    let more_at = unsafe { entry.add(6).read() } as usize;
    let more = copy.wrapping_add(more_at).cast::<u64>();
    let writers = copy.wrapping_add(80).cast::<u64>();
    let places: Vec<*mut u64> = (0..7)
        .map(|i| entry.wrapping_add(i))
        .chain((0..9).map(|i| more.wrapping_add(i)))
        .chain([writers, writers.wrapping_add(6)])
        .collect();
    // SAFETY: the entry, its second part, the number of writers and the first one's mark lie in the copy.
    let honest: Vec<u64> = places.iter().map(|place| unsafe { place.read() }).collect();
    assert_eq!((honest[0], honest[2], honest[3]), (1, KEYS, KEYS), "the test knows where the entry is");
    assert!(honest[7] > 0 && honest[8] >= 64 && honest[16] == 1 && honest[17] > 0, "and its second part, and writers");
    let keys: Vec<u64> = vec![0, 1, KEYS - 1, KEYS, KEYS + 9, 1 << 20, 1 << 31, u64::MAX];
    let lies = [0, 1, 2, 3, 7, 8, 64, KEYS, 1 << 20, 1 << 24, (1 << 24) - 8, 1 << 32, 1 << 62, u64::MAX, u64::MAX - 7];
    let mut state = 1_u64;
    for _ in 0..200_000 {
        for (place, word) in places.iter().zip(&honest) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let lie = match state >> 60 {
                0..=9 => *word,
                10..=12 => lies[(state >> 33) as usize % lies.len()],
                13 => state << 3,
                _ => state >> (state >> 40 & 63),
            };
            // SAFETY: as above.
            unsafe { place.write(lie) };
        }
        for key in &keys {
            let _ = read(&store, view, tag, &[*key], 4);
        }
        let _ = read(&store, view, tag, &keys, 4);
    }
    // SAFETY: used by nobody any more.
    unsafe { libc::munmap(page, bytes + 4096) };
}
