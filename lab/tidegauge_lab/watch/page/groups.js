// Consumer groups on the page: a card for each, with its members, who reads what, and the lag of each partition.
"use strict";

const groupCards = new Map(); // group id -> card

function makeGroupCard(name) {
  const card = {
    node: make("li", { class: "card group-card" }),
    state: make("span", { class: "group-state" }),
    facts: make("div", { class: "facts" }),
    reason: make("div", { class: "facts reason" }),
    members: make("ul", { class: "group-members" }),
    drawn: "",
  };
  card.node.append(make("h3", {}, name, card.state), card.facts, card.reason, card.members);
  return card;
}

// Without a leader the lag is not known.
function lagText(row) {
  if (row.leaderless) return "no leader";
  if (row.committed === null) return "nothing committed";
  return row.lag === null ? "lag unknown" : `lag ${row.lag}`;
}

function lagChip(row) {
  const chip = make("span", { class: "chip" }, `${row.partition} `, make("b", {}, lagText(row)));
  const end = row.end === null ? "unknown" : row.end;
  chip.title = `committed ${row.committed === null ? "nothing" : row.committed}, high watermark ${end}`;
  chip.classList.toggle("bad", row.leaderless);
  chip.classList.toggle("behind", row.lag > 0);
  return chip;
}

// Of a member of a consumer group: whether it has its target, and what it gives up or waits for.
function reconciled(member) {
  return member.state === "STABLE" && member.epoch >= 0 && !member.revoking.length && !member.awaits.length;
}

function reconciliationText(member) {
  if (member.epoch === -2) return "away, its partitions stay reserved";
  const parts = [`epoch ${member.epoch}`];
  if (member.revoking.length) parts.push(`has yet to give up ${member.revoking.join(", ")}`);
  for (const one of member.awaits) parts.push(`waits for ${one.partition} of ${one.member}`);
  return parts.join(", ");
}

function memberLine(member, rows) {
  const about = [member.instance ? `static ${member.instance}` : "", member.leader ? "leader" : ""].filter(Boolean).join(", ");
  const line = make("li", {}, make("span", { class: "member" }, member.id), ` ${member.host}${about ? `, ${about}` : ""} `);
  if (member.awaited) line.append(make("span", { class: "awaited" }, `awaited: ${member.awaited}`), " ");
  else if (member.parked) line.append(make("span", { class: "parked" }, `${member.parked} parked`), " ");
  if (member.epoch !== undefined) line.append(make("span", { class: reconciled(member) ? "epoch" : "awaited" }, reconciliationText(member)), " ");
  line.append(...rows.filter((row) => row.member === member.id).map(lagChip));
  return line;
}

// A consumer group has epochs; its target may be of an older one for a moment.
function generationText(group) {
  if (group.assignmentEpoch === undefined || group.assignmentEpoch === null) return `generation ${group.generation}`;
  const target = group.assignmentEpoch === group.generation ? "" : `, target of epoch ${group.assignmentEpoch}`;
  return `epoch ${group.generation}${target}`;
}

function drawGroup(group) {
  const card = cardOf(groupCards, "group-cards", group.group, makeGroupCard);
  write(card.state, group.state);
  mark(card.state, "class", `group-state ${group.state}`);
  card.node.classList.toggle("old", group.old);
  const count = group.memberCount ?? group.members.length;
  const protocol = group.protocol ? `, ${group.protocol}` : "";
  const lag = group.lag === null ? "" : `, lag ${group.lagIsPart ? "at least " : ""}${group.lag}`;
  const seen = group.old ? "; its coordinator does not respond: as last seen" : "";
  write(card.facts, `${generationText(group)}, ${counted(count, "member")}${protocol}${lag}; coordinator: broker ${group.coordinator} ${group.offsetsTopicPartition === null ? "" : ` (${group.offsetsTopicPartition})`}${seen}${group.memberCount === undefined ? "" : "; events tell neither what its members read nor their lag"}`);
  const rebalances = ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"].includes(group.state);
  show(card.reason, rebalances && group.reason !== "");
  write(card.reason, `rebalances because: ${group.reason}`);
  const drawn = JSON.stringify([group.members, group.partitions, rebalances]);
  if (drawn === card.drawn) return;
  card.drawn = drawn;
  const unread = group.partitions.filter((row) => row.member === null);
  const unreadText = rebalances ? "assigned to no member yet " : "no reader ";
  const lines = group.members.map((member) => memberLine(member, group.partitions));
  if (unread.length) lines.push(make("li", {}, make("span", { class: "member" }, unreadText), ...unread.map(lagChip)));
  card.members.replaceChildren(...lines);
}

function drawGroups(changed) {
  drawCards(groupCards, changed, view.groups, drawGroup);
  show(byId("groups"), groupCards.size > 0);
}
