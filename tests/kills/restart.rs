//! A shard that was killed and started anew.

use crate::rows::{Table, spec};
use crate::support::Deployment;
use reclane::error::Status;
use reclane::wire::payload::Command;
use std::path::PathBuf;

/// Where the servers of one test save; gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("reclane-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whatever order tables are made in, on whichever shard: a table keeps its tag, and LOAD brings its rows back.
#[test]
fn a_restarted_shard_has_its_tables_under_their_tags_and_load_brings_the_rows_back() {
    let directory = Directory::new("restart");
    let path = directory.0.to_str().expect("UTF-8");
    let mut deployment = Deployment::start(2, &[("checkpoint-directory", path)]);
    let client = deployment.client();
    let names = ["users", "items", "tags"];
    let tables = names.map(|name| Table::open(&client, name, 8));
    let keys: Vec<u64> = (0..200).collect();
    for (version, table) in (1_u8..).zip(tables) {
        table.put(&client, &keys, f32::from(version)).expect("a PUT");
    }
    client.command(&Command::Save("kept".to_owned())).expect("SAVE");
    drop(client);

    deployment.servers[1].kill();
    deployment.servers[1] = deployment.server(1);
    let client = deployment.client();
    // The other way round; and one that the shard which lives on has never heard of comes first.
    Table::open(&client, "new", 8);
    let again = [2, 1, 0].map(|i: usize| Table::open(&client, names[i], 8));
    assert_eq!([again[2].tag, again[1].tag, again[0].tag], tables.map(|table| table.tag));
    let lost = keys.iter().copied().find(|key| client.shard_of(*key) == 1).expect("a key of shard 1");
    assert_eq!(tables[0].get(&client, &[lost]).expect("a GET"), vec![0.0; 8], "a new process, no rows");
    client.command(&Command::Load("kept".to_owned())).expect("LOAD");
    for (version, table) in (1_u8..).zip(tables) {
        assert_eq!(table.get(&client, &keys).expect("a GET"), table.rows(&keys, f32::from(version)));
    }
    drop(client);

    // LOAD alone brings tables back too: a client that makes none anew finds them under their tags.
    deployment.servers[1].kill();
    deployment.servers[1] = deployment.server(1);
    let client = deployment.client();
    client.command(&Command::Load("kept".to_owned())).expect("LOAD");
    let table = Table::open(&client, "items", 8);
    assert_eq!(table.tag, tables[1].tag);
    assert_eq!(table.get(&client, &keys).expect("a GET"), table.rows(&keys, 2.0));
}

#[test]
fn a_word_to_all_shards_names_each_one_that_is_gone() {
    let mut deployment = Deployment::start(3, &[]);
    let client = deployment.client();
    Table::open(&client, "t", 8);
    deployment.servers[1].kill();
    deployment.servers[2].kill();
    for error in [
        client.command(&Command::Clear).expect_err("two are gone"),
        client.init_table(&spec("other", 8)).expect_err("two are gone"),
    ] {
        assert!(matches!(error.status, Status::ShardUnreachable), "{error}");
        assert!(error.message.contains("2 of 3 shards (1, 2)"), "{error}");
        assert!(error.message.contains("shard 1: ") && error.message.contains("shard 2: "), "{error}");
    }
}
