//! rust-rdkafka as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line of stdin,
//! consume SERVERS TOPIC COUNT GROUP prints that many records; each record is a line "offset value".
//! member SERVERS GROUP TOPIC is a member of the consumer protocol (KIP-848), as GroupMember.java is one.
use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::io::{stdin, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::Message;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["produce", servers, topic] => produce(servers, topic).await,
        ["consume", servers, topic, count, group] => consume(servers, topic, count.parse()?, group).await,
        ["member", servers, group, topic] => member(servers, group, topic).await,
        _ => Err("produce SERVERS TOPIC, consume SERVERS TOPIC COUNT GROUP, or member SERVERS GROUP TOPIC".into()),
    }
}

async fn produce(servers: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("enable.idempotence", "true").set("linger.ms", "0");
    let producer: FutureProducer = config.create()?;
    for line in stdin().lines() {
        let line = line?;
        let record = FutureRecord::<(), _>::to(topic).payload(&line);
        let written = producer.send(record, Duration::from_secs(120)).await.map_err(|(error, _)| error)?;
        println!("{} {line}", written.offset);
    }
    producer.flush(Duration::from_secs(120))?;
    Ok(())
}

async fn consume(servers: &str, topic: &str, count: usize, group: &str) -> Result<(), Box<dyn Error>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", group).set("auto.offset.reset", "earliest");
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    let mut seen = HashSet::new(); // a record that is read again, as its offset was not committed, does not count
    while seen.len() < count {
        match consumer.recv().await {
            Ok(record) => {
                println!("{} {}", record.offset(), String::from_utf8_lossy(record.payload().unwrap_or_default()));
                seen.insert(record.offset());
            }
            Err(error) => eprintln!("{error}"), // librdkafka goes on by itself
        }
    }
    Ok(())
}

async fn member(servers: &str, group: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let ends = Arc::new(AtomicBool::new(false));
    let ended = ends.clone();
    std::thread::spawn(move || {
        let _ = stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", group).set("group.protocol", "consumer");
    config.set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    let mut before: Option<Vec<i32>> = None;
    let mut read = 0;
    while !ends.load(Ordering::Relaxed) {
        let received = tokio::time::timeout(Duration::from_millis(200), consumer.recv()).await;
        let mut now: Vec<i32> = consumer.assignment()?.elements().iter().map(|one| one.partition()).collect();
        now.sort();
        if before.as_ref() != Some(&now) {
            println!("{{\"assigned\": {now:?}}}");
            before = Some(now);
        }
        match received {
            Ok(Ok(record)) => {
                read += 1;
                match consumer.commit_message(&record, CommitMode::Sync) {
                    Ok(()) => println!("{{\"committed\": {read}}}"),
                    Err(error) => eprintln!("not committed: {error}"), // a rebalance; others read it again
                }
            }
            Ok(Err(error)) => eprintln!("{error}"), // librdkafka goes on by itself
            Err(_) => {}
        }
    }
    Ok(())
}
