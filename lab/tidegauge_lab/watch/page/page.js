// What every script of the page is built from: finding and making nodes, and touching only what differs. Text comes in
// by textContent alone, so names can't become markup.
"use strict";

const byId = (id) => document.getElementById(id);
const COLOURS = 8; // of leader epochs; they repeat
const view = { brokers: {}, partitions: {}, groups: {} }; // what is shown now: `view_of` of the server

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
