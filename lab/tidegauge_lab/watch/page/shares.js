// Share groups on the page: a card for each share partition, its records in flight as boxes by their state.
"use strict";

const shareCards = new Map(); // GROUP/T-P -> card
const MOST_BOXES = 20; // of one range of records that are alike; a longer one is one wide box

function makeShareCard(name) {
  const card = {
    node: make("li", { class: "card share-card" }),
    facts: make("div", { class: "facts" }),
    records: make("div", { class: "share-records" }),
    drawn: "",
  };
  card.node.append(make("h3", {}, name), card.facts, card.records);
  return card;
}

function recordTitle(range, share) {
  const offsets = range.first === range.last ? `offset ${range.first}` : `offsets ${range.first} to ${range.last}`;
  const member = range.member ? ` by ${range.member}` : "";
  const count = range.count ? `, delivered ${range.count} of at most ${share.limit} times` : "";
  return `${offsets}: ${range.state}${member}${count}${range.writing ? ", being written" : ""}`;
}

function recordBox(range, share, text) {
  const box = make("span", { class: `record ${range.state}` }, text);
  if (range.count) box.append(make("small", {}, String(range.count)));
  box.classList.toggle("writing", range.writing);
  box.classList.toggle("last", range.state === "acquired" && range.count >= share.limit);
  box.title = recordTitle(range, share);
  return box;
}

function recordBoxes(range, share) {
  const size = range.last - range.first + 1;
  if (size > MOST_BOXES) return [recordBox(range, share, `${range.first} … ${range.last}`)];
  return Array.from({ length: size }, (_, place) => recordBox(range, share, String(range.first + place)));
}

function drawShare(share) {
  const card = cardOf(shareCards, "share-cards", share.name, makeShareCard);
  const who = share.leads ? `leader: broker ${share.broker}, epoch ${share.leaderEpoch}` : `broker ${share.broker} takes itself for the leader, epoch ${share.leaderEpoch}`;
  // A recording has neither the state on disk nor the log's end.
  const durable = share.durableStart === undefined ? "" : share.durableStart === null ? " (none on disk)" : ` (${share.durableStart} on disk)`;
  const left = share.readable === undefined ? "" : `, ${Math.max(0, share.readable - share.end)} to come`;
  const waits = share.unwritten ? `; ${counted(share.unwritten, "write")} under way` : "";
  write(card.facts, `${who}; start ${share.start}${durable}, ${counted(share.end - share.start, "record")} in flight${left}${waits}`);
  card.node.classList.toggle("bad", !share.leads);
  const drawn = JSON.stringify([share.records, share.hasMore, share.limit]);
  if (drawn === card.drawn) return;
  card.drawn = drawn;
  const boxes = share.records.flatMap((range) => recordBoxes(range, share));
  if (share.hasMore) boxes.push(make("span", {}, "and more"));
  card.records.replaceChildren(...boxes);
}

function drawShares(changed) {
  drawCards(shareCards, changed, view.shares, drawShare);
  show(byId("shares"), shareCards.size > 0);
}
