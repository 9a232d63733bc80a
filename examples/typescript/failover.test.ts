import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Kafka, logLevel } from "kafkajs";
import { Control, Refused } from "./steering.ts";

const cluster = new Control();
const RETRY = { retries: 100, maxRetryTime: 2000 }; // an election takes longer than kafkajs's five retries

beforeEach(async () => {
  await cluster.reset();
});

async function kafka(): Promise<Kafka> {
  return new Kafka({ brokers: await cluster.brokers(), logLevel: logLevel.NOTHING, retry: RETRY });
}

async function createTopic(topic: string): Promise<void> {
  const admin = (await kafka()).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 3 }] });
  await admin.disconnect();
  await cluster.wait({ in_sync: [topic] });
}

test("no record is lost when the leader is killed", { timeout: 180_000 }, async () => {
  await createTopic("orders");
  const producer = (await kafka()).producer({ idempotent: true });
  await producer.connect();
  const send = async (from: number, to: number) => {
    for (let number = from; number < to; number++) {
      await producer.send({ topic: "orders", acks: -1, messages: [{ value: String(number) }] });
    }
  };
  await send(0, 10);
  const killed = (await cluster.broker("leader-of:orders-0", "kill")).broker;
  await send(10, 20);
  await producer.disconnect();
  await cluster.wait({ leader: { "orders-0": { not: killed } } });
  await cluster.broker(killed, "start");
  await cluster.wait({ isr: { "orders-0": [0, 1, 2] } });

  const consumer = (await kafka()).consumer({ groupId: "app" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const found: string[] = [];
  await new Promise<void>((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        found.push(String(message.value));
        if (found.length === 20) resolve();
      },
    });
  });
  const group = await cluster.wait({ group: { id: "app", state: "Stable", members: 1 } });
  assert.equal(group.actual.members.length, 1);
  await consumer.disconnect();
  assert.deepEqual(found, [...Array(20).keys()].map(String));
});

test("a produce is sent again while replicas are too few", { timeout: 60_000 }, async () => {
  await createTopic("audit");
  const fault = await cluster.fault({ keys: ["Produce"], topic: "audit", error: "NOT_ENOUGH_REPLICAS", count: 2 });
  const producer = (await kafka()).producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic: "audit", acks: -1, messages: [{ value: "one" }] });
  await producer.disconnect();
  assert.equal((await cluster.waitFault(fault, { hits: 2 })).actual.hits, 2);
  assert.equal((await cluster.partition("audit")).high_watermark, 1);
  await assert.rejects(cluster.partition("nothing"), (problem: Refused) => problem.status === 404);
});
