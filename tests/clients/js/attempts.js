// kafkajs as a program, see tests/clients/attempts.py: attempts.js SERVERS reads lines "mechanism user password topic"
// and prints for each what came of writing a record and reading it: "done", or the error.
const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const [servers] = process.argv.slice(2);

async function attempt(mechanism, username, password, topic) {
  const kafka = new Kafka({
    brokers: servers.split(","),
    logLevel: logLevel.NOTHING,
    retry: { retries: 2 },
    sasl: { mechanism: mechanism.toLowerCase(), username, password },
  });
  const producer = kafka.producer();
  const consumer = kafka.consumer({ groupId: `kafkajs-${mechanism}` });
  try {
    await producer.connect();
    await producer.send({ topic, acks: -1, messages: [{ value: "kafkajs" }] });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      consumer.run({ eachMessage: resolve }).catch(reject);
    });
    return "done";
  } catch (problem) {
    return `${problem.name} ${problem.type ?? ""} ${problem.message}`.replaceAll("\n", " ");
  } finally {
    await consumer.disconnect();
    await producer.disconnect();
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await attempt(...line.split(" ")));
  }
}

main();
