// Platformatic's client in JavaScript as a program, see tests/clients/programs.py: produce SERVERS TOPIC sends each line
// of stdin, consume SERVERS TOPIC COUNT GROUP prints that many records; each record is a line "offset value".
const readline = require("node:readline");
const { Consumer, Producer, ProduceAcks, stringDeserializers, stringSerializers } = require("@platformatic/kafka");

const [verb, servers, topic, count, group] = process.argv.slice(2);
const common = { clientId: "tried", bootstrapBrokers: servers.split(","), retries: 2, retryDelay: 300, timeout: 5000 };
const pause = () => new Promise((resolve) => setTimeout(resolve, 200));

const STANDSTILL_MS = 20_000; // a send, or a stream, may stand still for ever after a broker has died
let abandon = () => {};
const limited = async (start) => {
  let timer; // without it nothing may be open, and Node.js would end while a promise waits
  const late = new Promise((_, reject) => {
    abandon = reject;
    timer = setTimeout(() => reject(new Error("it stands still")), STANDSTILL_MS);
  });
  try {
    return await Promise.race([new Promise((resolve) => resolve(start())), late]);
  } finally {
    clearTimeout(timer);
  }
};
// For a coordinator that the metadata no longer has the client throws a TypeError, often out of a callback.
process.on("uncaughtException", (problem) => abandon(problem));
// After the coordinator's death the member can't leave, so its session has to end before a next one gets an assignment:
// 60 s by default, more than a stream may stand still.
const membership = { sessionTimeout: 6000, rebalanceTimeout: 10_000, heartbeatInterval: 1000 };
const newProducer = () => new Producer({ ...common, serializers: stringSerializers, idempotent: true });

async function produce() {
  let producer = newProducer();
  for await (const value of readline.createInterface({ input: process.stdin })) {
    for (let sent = null; sent === null;) {
      try {
        sent = await limited(() => producer.send({ messages: [{ topic, value }], acks: ProduceAcks.ALL }));
        console.log(`${sent.offsets[0].offset} ${value}`);
      } catch (problem) { // it tries again at the leader that it knew, even if that one is dead: look for another by hand
        console.error(problem.message);
        producer = newProducer();
        await pause();
      }
    }
  }
}

async function consume() {
  const seen = new Set(); // a record that is read again, as its offset was not committed, does not count
  while (seen.size < Number(count)) {
    const consumer = new Consumer({ ...common, groupId: group, ...membership, deserializers: stringDeserializers });
    try {
      await readOn(consumer, seen);
    } catch (problem) { // the stream ends with the connection to a broker that dies
      console.error(problem.message);
      await pause();
    }
    await limited(() => consumer.close(true)).catch((problem) => console.error(problem.message));
  }
}

async function readOn(consumer, seen) {
  const committed = { topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: 500 };
  const messages = (await limited(() => consumer.consume(committed)))[Symbol.asyncIterator]();
  while (seen.size < Number(count)) {
    const { value: message, done } = await limited(() => messages.next());
    if (done) return;
    console.log(`${message.offset} ${message.value}`);
    seen.add(message.value);
  }
}

({ produce, consume })[verb]().then(() => process.exit(0), (problem) => {
  console.error(problem);
  process.exit(1);
});
