// Platformatic's client in JavaScript as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line
// of stdin, consume SERVERS TOPIC COUNT GROUP prints that many records; each record is a line "offset value".
const readline = require("node:readline");
const { Consumer, Producer, ProduceAcks, stringDeserializers, stringSerializers } = require("@platformatic/kafka");

const [verb, servers, topic, count, group] = process.argv.slice(2);
const common = { clientId: "tried", bootstrapBrokers: servers.split(","), retries: 2, retryDelay: 300, timeout: 5000 };
const pause = () => new Promise((resolve) => setTimeout(resolve, 200));

async function produce() {
  const producer = new Producer({ ...common, serializers: stringSerializers, idempotent: true });
  for await (const value of readline.createInterface({ input: process.stdin })) {
    const sent = await sentAtLast(producer, value);
    console.log(`${sent.offsets[0].offset} ${value}`);
  }
  await producer.close();
}

// A send is tried again at the leader that was known when it began, even if that one is dead: look for another by hand.
async function sentAtLast(producer, value) {
  for (;;) {
    try {
      return await producer.send({ messages: [{ topic, value }], acks: ProduceAcks.ALL });
    } catch (problem) {
      console.error(problem.message);
      producer.clearMetadata();
      await pause();
    }
  }
}

async function consume() {
  const seen = new Set(); // a record that is read again, as its offset was not committed, does not count
  while (seen.size < Number(count)) {
    const consumer = new Consumer({ ...common, groupId: group, deserializers: stringDeserializers });
    try {
      await readOn(consumer, seen);
    } catch (problem) { // the stream ends with the connection to a broker that dies
      console.error(problem.message);
      await pause();
    }
    await consumer.close(true).catch((problem) => console.error(problem.message));
  }
}

async function readOn(consumer, seen) {
  const stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: 500 });
  for await (const message of stream) {
    console.log(`${message.offset} ${message.value}`);
    if (seen.add(message.offset).size === Number(count)) return;
  }
}

({ produce, consume })[verb]().then(() => process.exit(0), (problem) => {
  console.error(problem);
  process.exit(1);
});
