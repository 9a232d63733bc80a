// The cards of ZooKeeper or the controllers, and of each broker, with their buttons.
"use strict";

const cards = new Map(); // id of a broker, or "zookeeper" -> card
const controllerCards = new Map(); // id of a controller -> card; a broker may have the same

function makeCard(target, title) {
  const card = {
    node: make("li", { class: "card" }),
    state: make("span", { class: "state" }),
    badge: make("span", { class: "badge" }, "controller"),
    place: make("div"),
    session: make("div"),
    leads: make("div"),
    faults: make("div", { class: "faults" }),
    now: "",
    actions: make("div", { class: "buttons" }),
    network: make("div", { class: "buttons" }),
  };
  const does = (name) => () => ({ action: name(), broker: target });
  card.stops = () => (card.now === "down" ? "start" : "stop");
  card.pauses = () => (card.now === "paused" ? "resume" : "pause");
  card.kill = button(texts("kill"), `${texts("kill")} ${title}`, does(() => "kill"));
  card.kill.classList.add("harm");
  card.stop = button("", "", does(card.stops));
  card.pause = button("", "", does(card.pauses));
  card.actions.append(card.kill, card.stop, card.pause);
  card.node.append(
    make("h3", {}, title, card.state, card.badge),
    make("div", { class: "facts" }, card.place, card.session, card.leads, card.faults),
    card.actions,
  );
  if (target !== "zookeeper") {
    const ends = make("select", { "aria-label": `What to isolate ${title} from` });
    const words = declared.faults.isolate.properties.from.anyOf.find((one) => one.enum).enum;
    for (const value of words) ends.append(make("option", { value }, `from ${value}`));
    card.isolate = button("Isolate", `Isolate ${title}`, () => ({ action: "isolate", broker: target, from: ends.value }));
    card.heal = button(texts("heal"), `${texts("heal")} ${title}`, () => ({ action: "heal", broker: target }));
    card.network.append(card.isolate, ends, card.heal);
    card.node.append(card.network);
  }
  card.title = title;
  return card;
}

function drawCard(card, state, place, switchable) {
  card.now = state;
  write(card.state, state);
  mark(card.state, "class", `state ${state}`);
  card.node.classList.toggle("down", state === "down");
  write(card.place, place);
  show(card.actions, switchable || Boolean(view.greyed));
  show(card.network, switchable || Boolean(view.greyed));
  write(card.stop, texts(card.stops()));
  mark(card.stop, "aria-label", `${texts(card.stops())} ${card.title}`);
  write(card.pause, texts(card.pauses()));
  mark(card.pause, "aria-label", `${texts(card.pauses())} ${card.title}`);
  able(card.kill, switchable && state !== "down" && state !== "kafka");
  able(card.pause, switchable && state !== "down" && state !== "kafka");
  able(card.stop, switchable && state !== "kafka");
}

function drawBroker(broker) {
  let card = cards.get(broker.id);
  if (!card) {
    card = makeCard(broker.id, `Broker ${broker.id}`);
    cards.set(broker.id, card);
    const next = [...cards.keys()].filter((id) => id !== "zookeeper" && id > broker.id).sort((a, b) => a - b)[0];
    const [firstController] = controllerCards.values();
    byId("cards").insertBefore(card.node, (cards.get(next) || firstController || { node: null }).node);
  }
  const pid = broker.pid === null ? "" : `, process ${broker.pid}`;
  drawCard(card, broker.state, `${broker.address}${pid}`, view.switchable);
  show(card.badge, broker.controller);
  show(card.session, inKRaft() ? Boolean(broker.fenced) : view.switchable || Boolean(view.past));
  write(card.session, inKRaft() ? "fenced: it leads nothing, and is in no ISR" : `ZooKeeper: ${broker.sessionText}`);
  const kafka = broker.state === "kafka" ? "; an Apache Kafka broker: what its replicas hold can't be shown" : "";
  const silent = broker.state === "up" && !broker.answers ? "; does not respond" : kafka;
  write(card.leads, `leads ${broker.leads} of its ${counted(broker.replicas, "partition")}${silent}`);
  const held = broker.held ? [`${broker.held} held`] : [];
  write(card.faults, [...broker.faults, ...held].join("; "));
  able(card.isolate, view.switchable && broker.state === "up");
  able(card.heal, view.switchable && broker.faults.length > 0);
  const head = heads.get(broker.id);
  if (head) {
    write(head.state, broker.state === "up" ? "" : broker.state);
    mark(head.state, "class", `state ${broker.state === "up" ? "" : broker.state}`);
    write(head.controller, broker.controller ? "controller" : "");
  }
}

function inKRaft() {
  return (view.controllers || []).length > 0;
}

// A controller's card: its role in the quorum, and how far its log is and is committed.
function drawControllers() {
  const shown = view.controllers || [];
  for (const [id, card] of controllerCards) {
    if (shown.some((one) => one.id === id)) continue;
    card.node.remove(); // it had written nothing at that moment
    controllerCards.delete(id);
  }
  for (const one of shown) {
    let card = controllerCards.get(one.id);
    if (!card) {
      card = makeCard(one.id, `Controller ${one.id}`);
      card.network.remove();
      controllerCards.set(one.id, card);
      byId("cards").append(card.node);
    }
    const pid = one.pid === null ? "" : `, process ${one.pid}`;
    drawCard(card, one.state, `${one.address}${pid}`, view.switchable);
    show(card.badge, one.id === view.controller);
    const epoch = one.epoch === null ? "" : `, epoch ${one.epoch}`;
    const leaderless = one.state === "up" ? "no leader is known" : "";
    write(card.session, one.role === null ? leaderless : `${one.role}${epoch}`);
    const high = one.high_watermark === null ? "" : `, high watermark ${one.high_watermark}`;
    write(card.leads, one.log_end_offset === null ? "" : `log end ${one.log_end_offset}${high}`);
  }
}

function drawZooKeeper() {
  let card = cards.get("zookeeper");
  if (!card) {
    card = makeCard("zookeeper", "ZooKeeper");
    cards.set("zookeeper", card);
    byId("cards").prepend(card.node);
    show(card.badge, false);
  }
  const zookeeper = view.zookeeper;
  show(card.node, zookeeper.address !== "" || (Boolean(view.past) && zookeeper.state !== "unknown"));
  drawCard(card, zookeeper.state, zookeeper.address, view.switchable && zookeeper.managed);
  const sessions = Object.values(view.brokers).filter((broker) => broker.session !== null).length;
  write(card.session, view.past ? "" : zookeeper.answers ? `${counted(sessions, "session")} of brokers` : "does not respond");
  const epoch = view.controllerEpoch === null ? "" : `, controller epoch ${view.controllerEpoch}`;
  write(card.leads, view.controller === null ? "no controller is known" : `controller: broker ${view.controller}${epoch}`);
}
