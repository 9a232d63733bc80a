// Confluent's client in JavaScript (librdkafka) as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends
// each line of stdin, consume SERVERS TOPIC COUNT GROUP prints that many records; each record is a line "offset value".
const readline = require("node:readline");
const { Kafka, logLevel } = require("@confluentinc/kafka-javascript").KafkaJS;

const [verb, servers, topic, count, group] = process.argv.slice(2);
const kafka = new Kafka({ kafkaJS: { brokers: servers.split(","), logLevel: logLevel.ERROR } });

async function produce() {
  const producer = kafka.producer({ kafkaJS: { idempotent: true } });
  await producer.connect();
  for await (const value of readline.createInterface({ input: process.stdin })) {
    const [sent] = await producer.send({ topic, messages: [{ value }] });
    console.log(`${sent.baseOffset} ${value}`);
  }
  await producer.disconnect();
}

async function consume() {
  const consumer = kafka.consumer({ kafkaJS: { groupId: group, fromBeginning: true } });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic] });
  const seen = new Set(); // a record that is read again, as its offset was not committed, does not count
  await new Promise((resolve) => consumer.run({
    eachMessage: async ({ message }) => {
      console.log(`${message.offset} ${message.value}`);
      if (seen.add(message.offset).size === Number(count)) resolve();
    },
  }));
  await consumer.disconnect();
}

({ produce, consume })[verb]().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
