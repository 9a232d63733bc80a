// kafkajs as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line of stdin,
// consume SERVERS TOPIC COUNT GROUP prints that many records; each record is a line "offset value".
const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const [verb, servers, topic, count, group] = process.argv.slice(2);
// The default, five retries, may end before an election does.
const retry = { retries: 100, maxRetryTime: 2000 };
const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR, retry });

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for await (const value of readline.createInterface({ input: process.stdin })) {
    const [sent] = await producer.send({ topic, acks: -1, messages: [{ value }] });
    console.log(`${sent.baseOffset} ${value}`);
  }
  await producer.disconnect();
}

async function consume() {
  const consumer = kafka.consumer({ groupId: group });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = new Set(); // what is read again, as its offset was not committed, does not count
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
