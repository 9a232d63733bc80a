// Messages: those in flight as handles, all of them as a sequence diagram, and the table of what changed.
"use strict";

const nameOf = (id) => (id < 0 ? word("client") : String(id));
const fullName = (id) => (id < 0 ? word("client") : `${word("broker")} ${id}`);

// The messages as they were at the moment that is shown.
function messagesShown() {
  const now = actionShown();
  if (now === desk.state.actions.length) return desk.state.messages;
  const sent = desk.state.messages.filter((one) => one.sent <= now);
  return sent.map((one) => (one.ended > now ? { ...one, fate: "in flight", note: "" } : one));
}

function drawFlight() {
  const flying = messagesShown().filter((one) => one.fate === "in flight");
  write(byId("flight-hint"), flying.length ? word(desk.state.settings.by_hand ? "flight-hand" : "flight-auto") : word("none"));
  const focused = document.activeElement?.dataset?.handle;
  byId("flight").replaceChildren(...flying.map(makeHandle));
  if (focused) byId("flight").querySelector(`[data-handle="${focused}"]`)?.focus();
}

function makeHandle(message) {
  const does = (kind) => {
    const node = own(word(kind), () => act(kind, { message: message.number }), `${word(kind)}: ${message.number} ${message.text}`);
    node.dataset.handle = `${kind}-${message.number}`;
    return node;
  };
  const buttons = make("span", { class: "buttons" });
  if (!past.shown) buttons.append(does("deliver"), does("lose"));
  if (past.shown) return make("li", {}, make("span", { class: "text" }, aboutMessage(message)));
  if (message.repeats) buttons.append(does("repeat"));
  if (!message.held) buttons.append(does("delay"));
  const why = [message.held ? word("held") : "", message.note].filter(Boolean).join("; ");
  return make("li", {}, make("span", { class: "text" }, aboutMessage(message)), make("span", { class: "why" }, why), buttons);
}

const aboutMessage = (message) => `${message.number}. ${fullName(message.from)} → ${fullName(message.to)}: ${message.text}`;

// --- The sequence diagram ------------------------------------------------------------------------------------------

const LANE = 150;
const LINE = 22;
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

function drawSequence() {
  const { actions } = desk.state;
  const messages = messagesShown();
  const ids = [-1, ...Object.keys(desk.view().brokers).map(Number).sort((a, b) => a - b)];
  const x = (id) => 40 + LANE * (ids.indexOf(id) + 0.5);
  const rows = []; // the content of each line, from the top: an action, or a message
  const said = (number) => (number ? `${number}. ${spoken(actions[number - 1].said)}` : word("start"));
  let last = -1;
  for (const message of messages) {
    if (message.sent !== last) {
      last = message.sent;
      rows.push({ text: said(last) });
    }
    rows.push({ message });
  }
  const width = 40 + LANE * ids.length + 640;
  const height = LINE * (rows.length + 2);
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": word("sequence") });
  for (const id of ids) {
    drawing.append(svg("text", { x: x(id), y: 15, class: "head", "text-anchor": "middle" }, fullName(id)));
    drawing.append(svg("line", { x1: x(id), x2: x(id), y1: 22, y2: height - 5, class: "life" }));
  }
  rows.forEach((row, place) => {
    const y = LINE * (place + 2) - 4;
    if (row.text) drawing.append(svg("text", { x: 4, y, class: "soft" }, row.text));
    else drawing.append(...arrowOf(row.message, x, y, 40 + LANE * ids.length));
  });
  const frame = byId("sequence").parentNode;
  const atEnd = frame.scrollHeight - frame.scrollTop - frame.clientHeight < 40;
  byId("sequence").replaceChildren(drawing);
  if (atEnd) frame.scrollTop = frame.scrollHeight;
}

function arrowOf(message, x, y, right) {
  const [from, to] = [x(message.from), x(message.to)];
  const kind = message.fate === "lost" ? "lost" : message.fate === "in flight" ? "flying" : "";
  const ended = message.ended > message.sent ? `, ${word("action")} ${message.ended}` : "";
  const label = svg("text", { x: right, y }, `${message.number}. ${message.text}${kind === "lost" ? " ✕" : ""}${ended}`);
  if (from === to) return [svg("circle", { cx: from, cy: y - 4, r: 3, class: `tip ${kind}` }), label];
  const end = kind ? from + (to - from) * 0.7 : to;
  const back = end > from ? -6 : 6;
  return [
    svg("line", { x1: from, x2: end, y1: y - 4, y2: y - 4, class: `arrow ${kind}` }),
    svg("polygon", { points: `${end},${y - 4} ${end + back},${y - 8} ${end + back},${y}`, class: `tip ${kind}` }),
    label,
  ];
}

// --- The table -----------------------------------------------------------------------------------------------------

const COLUMNS = ["action", "attribute", "phase", "old", "new", "note"];

function drawRows() {
  const table = byId("rows");
  const head = table.tHead.rows[0];
  if (!head.cells.length) head.append(...COLUMNS.map((name) => make("th", { scope: "col" }, word(name))));
  const body = table.tBodies[0];
  const now = actionShown();
  const rows = desk.state.rows.filter((row) => Number(row.step) <= now);
  if (body.rows.length > rows.length) body.replaceChildren();
  for (const row of rows.slice(body.rows.length)) {
    body.append(make("tr", {}, ...["step", ...COLUMNS.slice(1)].map((name) => make("td", {}, row[name]))));
  }
  if (!rows.length) return;
  const [first] = body.rows;
  if (first.cells[5].textContent !== rows[0].note || body.rows[rows.length - 1].cells[5].textContent !== rows[rows.length - 1].note) {
    body.replaceChildren(); // another run: all rows are made again
    drawRows();
  }
}
