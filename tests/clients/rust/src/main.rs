//! rskafka as a program, see tests/clients/programs.py: consume SERVERS TOPIC COUNT prints that many records of
//! partition 0, each a line "offset value". It knows no groups.
use std::env;
use std::error::Error;
use std::sync::Arc;

use futures::StreamExt;
use rskafka::client::consumer::{StartOffset, StreamConsumerBuilder};
use rskafka::client::partition::UnknownTopicHandling;
use rskafka::client::ClientBuilder;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().collect();
    let [_, verb, servers, topic, count] = words.as_slice() else {
        return Err("consume SERVERS TOPIC COUNT".into());
    };
    assert_eq!(verb, "consume");
    let count: usize = count.parse()?;
    let client = ClientBuilder::new(servers.split(',').map(String::from).collect()).build().await?;
    let partition = client.partition_client(topic.clone(), 0, UnknownTopicHandling::Retry).await?;
    let mut records = StreamConsumerBuilder::new(Arc::new(partition), StartOffset::Earliest).build().take(count);
    while let Some(next) = records.next().await {
        let (found, _high_watermark) = next?;
        println!("{} {}", found.offset, String::from_utf8_lossy(&found.record.value.unwrap_or_default()));
    }
    Ok(())
}
