// What every script of the page is built from: finding and making nodes, and touching only what differs. Text comes in
// by textContent alone, so names can't become markup.
"use strict";

const byId = (id) => document.getElementById(id);
const COLOURS = 8; // of leader epochs; they repeat
const ENTRIES = ["brokers", "partitions", "groups", "shares", "transactions"]; // parts of a view that change entry by entry
const entries = () => Object.fromEntries(ENTRIES.map((key) => [key, {}]));
const live = entries(); // what the server sent last: `view_of` there
const view = entries(); // the view on the page: the same, or a moment of the past
const recording = byId("recording") && JSON.parse(byId("recording").textContent); // null on a live page

// The fragment of the address; nothing if that is no text.
function addressed() {
  try {
    return decodeURIComponent(window.location.hash.slice(1));
  } catch {
    return "";
  }
}

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// The original text of a node that another script has translated since.
const originals = new WeakMap();

function write(node, text) {
  if (node.textContent === text || originals.get(node) === text) return;
  originals.delete(node);
  node.textContent = text;
}

function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function show(node, wanted) {
  if (node.hidden === wanted) node.hidden = !wanted;
}

function style(node, name, value) {
  if (node.style.getPropertyValue(name) !== value) node.style.setProperty(name, value);
}

// The card of a name in a list that is sorted by name; a new one is put into its place.
function cardOf(cards, list, name, makeCard) {
  if (!cards.has(name)) {
    const card = makeCard(name);
    cards.set(name, card);
    const next = [...cards.keys()].filter((other) => other > name).sort()[0];
    byId(list).insertBefore(card.node, next === undefined ? null : cards.get(next).node);
  }
  return cards.get(name);
}

// Draw what there is of these names, and take the cards of all others among them away.
function drawCards(cards, names, entriesNow, drawCard) {
  for (const name of names) {
    if (entriesNow[name]) drawCard(entriesNow[name]);
    else if (cards.has(name)) {
      cards.get(name).node.remove();
      cards.delete(name);
    }
  }
}

// A number with its noun, in singular or plural.
const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

const ids = (brokers) => (brokers.length ? brokers.join(",") : "empty");

const clock = (moment) => moment.toLocaleTimeString("en-GB");

const precise = (time) => source.precise(time);
