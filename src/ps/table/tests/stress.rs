//! Several workers at once: whole rows, exact sums, pins that hold.

use super::*;
use crate::sync::AtomicBool;

const DIM: usize = 40;
const KEYS: u64 = 96;

fn shared(workers: u32) -> BuiltinStore {
    BuiltinStore::new(StoreOptions { workers, ..options() }).unwrap()
}

fn assert_whole(rows: &[f32]) {
    for row in rows.chunks(DIM) {
        assert!(row.iter().all(|x| x.to_bits() == row[0].to_bits()), "a torn row: {row:?}");
    }
}

/// Two writers give rows equal elements, two readers check that, one worker makes the indexes grow, one clears.
#[test]
fn no_reader_sees_a_torn_row() {
    let store = shared(6);
    let tags = [64, 0].map(|expected| {
        store.init_table(0, &spec(&format!("t{expected}"), DIM as u32, expected, Optimizer::Adagrad)).unwrap()
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, done) = (&store, &done);
        let readers: Vec<_> = (0..2)
            .map(|worker| {
                scope.spawn(move || {
                    let keys: Vec<u64> = (0..KEYS).collect();
                    let mut rounds = 0_u64;
                    while !done.load(Ordering::Relaxed) || rounds == 0 {
                        assert_whole(&get_once(store, worker, tags[rounds as usize % 2], &keys).unwrap().0);
                        rounds += 1;
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (2..4)
            .map(|worker| {
                scope.spawn(move || {
                    for round in 0..1500_u32 {
                        let keys: Vec<u64> = (0..16).map(|i| u64::from(round * 7 + i * worker) % KEYS).collect();
                        let rows: Vec<f32> =
                            (0..16 * DIM).map(|i| (round * worker + (i / DIM) as u32) as f32).collect();
                        let tag = tags[round as usize % 2];
                        put(store, worker, tag, &keys, &rows).unwrap();
                        update(store, worker, tag, &keys, &rows).unwrap();
                    }
                })
            })
            .collect();
        let grower = scope.spawn(move || {
            for start in (0..40).map(|i| 1000 + i * 500) {
                let keys: Vec<u64> = (start..start + 500).collect();
                put(store, 4, tags[1], &keys, &vec![1.0; 500 * DIM]).unwrap();
            }
        });
        let clearer = scope.spawn(move || {
            for _ in 0..20 {
                store.clear(5).unwrap();
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = writers.into_iter().chain([grower, clearer]).map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn no_update_is_lost() {
    let store = shared(3);
    let tag = store.init_table(0, &spec("sum", DIM as u32, 40, Optimizer::Add)).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let keys: Vec<u64> = (0..KEYS).collect();
                for _ in 0..300 {
                    update(store, worker, tag, &keys, &vec![1.0; keys.len() * DIM]).unwrap();
                }
            });
        }
    });
    let keys: Vec<u64> = (0..KEYS).collect();
    assert_eq!(get_once(&store, 0, tag, &keys), Ok((vec![900.0; keys.len() * DIM], 0)));
}

#[test]
fn a_pinned_row_waits_for_its_pin_before_another_worker_changes_it() {
    let store = shared(3);
    let tag = store.init_table(0, &spec("t", DIM as u32, KEYS, Optimizer::Add)).unwrap();
    let keys: Vec<u64> = (0..KEYS).collect();
    put(&store, 0, tag, &keys, &vec![0.0; keys.len() * DIM]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, done, keys) = (&store, &done, &keys);
        let writers: Vec<_> = (1..3)
            .map(|worker| {
                scope.spawn(move || {
                    for _ in 0..200 {
                        update(store, worker, tag, keys, &vec![1.0; keys.len() * DIM]).unwrap();
                    }
                })
            })
            .collect();
        let pinner = scope.spawn(move || {
            let (mut rows, mut held) = (Vec::new(), 0_u32);
            while !done.load(Ordering::Relaxed) || held == 0 {
                rows.clear();
                let Ok(token) = store.pin(0, tag, &keys[..4], &mut rows) else {
                    assert!(rows.is_empty());
                    std::thread::yield_now();
                    continue;
                };
                // SAFETY: pinned rows are DIM elements long, and nobody changes them.
                let look = || rows.iter().map(|r| unsafe { r.address.cast::<[f32; DIM]>().read() }).collect::<Vec<_>>();
                let first = look();
                assert_whole(&first.concat());
                std::thread::yield_now();
                assert_eq!(first, look());
                store.unpin(0, token);
                held += 1;
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
        pinner.join().unwrap();
    });
    assert_eq!(get_once(&store, 0, tag, &keys), Ok((vec![400.0; keys.len() * DIM], 0)));
}
