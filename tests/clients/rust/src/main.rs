//! rskafka as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line of stdin to partition 0,
//! consume SERVERS TOPIC COUNT prints that many of its records; each record is a line "offset value". It knows no groups.
use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::stdin;
use std::sync::Arc;

use futures::StreamExt;
use rskafka::client::consumer::{StartOffset, StreamConsumerBuilder};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["produce", servers, topic] => produce(partition(servers, topic).await?).await,
        ["consume", servers, topic, count] => consume(partition(servers, topic).await?, count.parse()?).await,
        _ => Err("produce SERVERS TOPIC, or consume SERVERS TOPIC COUNT".into()),
    }
}

async fn partition(servers: &str, topic: &str) -> Result<PartitionClient, Box<dyn Error>> {
    let client = ClientBuilder::new(servers.split(',').map(String::from).collect()).build().await?;
    Ok(client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?)
}

async fn produce(partition: PartitionClient) -> Result<(), Box<dyn Error>> {
    for line in stdin().lines() {
        let line = line?;
        let record = Record {
            key: None,
            value: Some(line.clone().into_bytes()),
            headers: BTreeMap::new(),
            timestamp: chrono::Utc::now(),
        };
        let written = partition.produce(vec![record], Compression::NoCompression).await?;
        println!("{} {line}", written[0]);
    }
    Ok(())
}

async fn consume(partition: PartitionClient, count: usize) -> Result<(), Box<dyn Error>> {
    let mut records = StreamConsumerBuilder::new(Arc::new(partition), StartOffset::Earliest).build();
    let mut seen = std::collections::HashSet::new(); // a record may be there twice: the producer is not idempotent
    while seen.len() < count {
        let Some(next) = records.next().await else { break };
        let (found, _high_watermark) = next?;
        let value = String::from_utf8_lossy(&found.record.value.unwrap_or_default()).into_owned();
        println!("{} {value}", found.offset);
        seen.insert(value);
    }
    Ok(())
}
