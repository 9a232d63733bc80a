// Platformatic's client in JavaScript as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line
// of stdin, consume SERVERS TOPIC COUNT GROUP prints that many records; each record is a line "offset value".
const readline = require("node:readline");
const { Consumer, Producer, ProduceAcks, stringDeserializers, stringSerializers } = require("@platformatic/kafka");

const [verb, servers, topic, count, group] = process.argv.slice(2);
// Its default, three retries a second apart, ends before an election does.
const common = { clientId: "tried", bootstrapBrokers: servers.split(","), retries: 100, retryDelay: 500 };

async function produce() {
  const producer = new Producer({ ...common, serializers: stringSerializers, idempotent: true });
  for await (const value of readline.createInterface({ input: process.stdin })) {
    const sent = await producer.send({ messages: [{ topic, value }], acks: ProduceAcks.ALL });
    console.log(`${sent.offsets[0].offset} ${value}`);
  }
  await producer.close();
}

async function consume() {
  const consumer = new Consumer({ ...common, groupId: group, deserializers: stringDeserializers });
  const stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: 500 });
  const seen = new Set(); // a record that is read again, as its offset was not committed, does not count
  for await (const message of stream) {
    console.log(`${message.offset} ${message.value}`);
    if (seen.add(message.offset).size === Number(count)) break;
  }
  await consumer.close(true);
}

({ produce, consume })[verb]().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
