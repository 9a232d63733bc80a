// What every script of the page is built from: finding and making nodes, and touching only what differs. Text comes in
// by textContent alone, so names can't become markup.
"use strict";

const byId = (id) => document.getElementById(id);
const COLOURS = 8; // of leader epochs; they repeat
const ENTRIES = ["brokers", "partitions", "groups", "transactions"]; // parts of a view that change entry by entry
const entries = () => Object.fromEntries(ENTRIES.map((key) => [key, {}]));
const live = entries(); // what the server sent last: `view_of` there
const view = entries(); // what is shown: the same, or a moment of the past
const recording = byId("recording") && JSON.parse(byId("recording").textContent); // null on a live page

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
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

const ids = (brokers) => (brokers.length ? brokers.join(",") : "nobody");

const clock = (moment) => moment.toLocaleTimeString("en-GB");

const precise = (time) => `${clock(new Date(time))}.${String(new Date(time).getMilliseconds()).padStart(3, "0")}`;
