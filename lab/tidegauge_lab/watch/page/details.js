// A partition's details, which a press on its name opens: each replica in words, and its holds.
"use strict";

function toggleMore(name, row) {
  const open = row.more === null;
  mark(row.name, "aria-expanded", String(open));
  if (!open) {
    row.more.node.parentNode.remove();
    row.more = null;
    return;
  }
  row.more = { node: make("div", { class: "more", role: "cell" }), replicas: new Map() };
  row.group.append(make("div", { role: "row" }, row.more.node));
  drawMore(name, row);
}

function drawMore(name, row) {
  const partition = view.partitions[name];
  const assigned = partition.assigned.join(",");
  if (row.more.assigned !== assigned) {
    row.more.assigned = assigned;
    row.more.replicas.clear();
    row.more.node.replaceChildren(...[...partition.assigned].sort((a, b) => a - b).map((id) => makeMore(name, row, id)));
  }
  for (const [id, part] of row.more.replicas) {
    const replica = partition.replicas[id];
    write(part.text, inWords(replica));
    const free = replica.role === "follower" && !replica.old;
    show(part.buttons, (view.switchable || Boolean(view.greyed)) && (free || replica.held));
    able(part.hold, view.switchable);
    part.held = replica.held;
    write(part.hold, texts(part.holds()));
    mark(part.hold, "aria-label", `${part.hold.textContent}: ${name} on broker ${id}`);
    able(part.step, view.switchable && replica.held && free);
  }
}

function makeMore(name, row, id) {
  const part = { text: make("p"), buttons: make("div", { class: "buttons" }), held: false };
  part.holds = () => (part.held ? "release_fetch" : "hold_fetch");
  part.hold = button("", "", () => ({ action: part.holds(), broker: id, partition: name }));
  part.step = button(texts("step_fetch"), `${texts("step_fetch")}: one fetch round of ${name} on broker ${id}`, () => ({ action: "step_fetch", broker: id, partition: name }));
  part.buttons.append(part.hold, part.step);
  row.more.replicas.set(id, part);
  return make("div", {}, make("h4", {}, `${name} on broker ${id}`), part.text, part.buttons);
}

function inWords(replica) {
  if (!Number.isInteger(replica.leo)) return view.past ? `${replica.role}; no event says what its log holds.` : replica.role === "offline" ? "Its log directory is offline." : "Its broker has not responded yet.";
  const words = [
    `${replica.role}${replica.epoch === null ? "" : ` in epoch ${replica.epoch}`}, ${replica.isr === null ? "ISR unknown" : replica.isr ? "in the ISR" : "not in the ISR"}${replica.old ? " (as last seen)" : ""}`,
    `offsets ${replica.logStart} to ${replica.leo}, HW ${replica.hw ?? "unknown"}${holdsReaders(replica) ? `, last stable offset ${replica.lso}` : ""}${replica.bytes === null ? "" : `, ${counted(replica.bytes, "byte")}`}`,
  ];
  const epochs = replica.epochs.map(([epoch, from, to]) => (from === to ? `${epoch}@${from} (empty)` : `${epoch}@${from}`));
  words.push(epochs.length ? `epochs ${epochs.join(" ")}` : "no epochs yet");
  const knows = Object.entries(replica.knows).map(([id, leo]) => `broker ${id}: ${leo === null ? "nothing yet" : leo}`);
  if (knows.length) words.push(`knows LEO of ${knows.join(", ")}`);
  if (replica.held) words.push(replica.keptBy === null ? "held" : `held, broker ${replica.keptBy} withholds a response`);
  return `${words.join("; ")}.`;
}
