// The controls of the page `play`: what a person does, and the settings of the cluster.
"use strict";

const hand = { brokers: "", leader: null, fields: {}, selects: [] };

function numberField(name, least, most, value) {
  const node = make("input", { type: "number", min: least, max: most, value, id: `hand-${name}` });
  hand.fields[name] = () => Number(node.value);
  return make("label", {}, `${word(name)} `, node);
}

function choice(name, options, label = word(name)) {
  const node = make("select", { id: `hand-${name}` }, ...options.map(([value, text]) => make("option", { value }, text)));
  hand.fields[name] = () => Number(node.value);
  return make("label", {}, `${label} `, node);
}

// A choice of a broker; it is filled when the brokers are known.
function brokerChoice(name, label) {
  const field = choice(name, [], label);
  hand.selects.push(field.lastChild);
  return field;
}

const group = (title, ...nodes) => make("fieldset", {}, make("legend", {}, title), ...nodes);

function makeHand() {
  const value = (name) => hand.fields[name]();
  byId("hand").append(
    group(
      word("client"),
      numberField("count", 1, 20, 1),
      choice("acks", [[2, "all"], [1, "1"], [0, "0"]]),
      brokerChoice("at"),
      own(word("produce"), () => act("produce", { count: value("count"), acks: value("acks"), broker: value("at") })),
      own(`${word("produce")} (${word("idempotent")})`, () => act("produce_idempotently", { count: value("count"), broker: value("at") })),
      own(word("consume"), () => act("consume", { broker: value("at") })),
    ),
    group(
      word("broker"),
      brokerChoice("broker"),
      own(word("end-session"), () => act("end_session", { broker: value("broker") })),
      own(word("power-loss"), () => act("power_loss", { broker: value("broker") })),
      own(word("flush"), () => act("flush", { broker: value("broker") })),
      own(word("checkpoint"), () => act("checkpoint", { broker: value("broker") })),
    ),
    group(
      word("cut"),
      brokerChoice("from"),
      brokerChoice("to"),
      own(word("cut"), () => act("cut_link", { broker: value("from"), other: value("to") })),
      own(`${word("cut")}: ZooKeeper`, () => act("part_zookeeper", { broker: value("from") })),
      own(word("heal"), () => act("heal_links")),
    ),
    makeApplications(value),
    group(
      word("wait"),
      ...[[100, "0.1 s"], [500, "0.5 s"], [5000, "5 s"], [18000, "18 s"], [30000, "30 s"]].map(([ms, text]) => own(text, () => act("wait", { ms }), `${word("wait")}: ${text}`)),
    ),
    group(
      word("controller"),
      own(word("elect"), () => act("elect")),
    ),
    group(
      word("action"),
      own(word("back"), () => request({ op: "back", count: Math.max(0, desk.state.actions.length - 1) })),
      own(word("on"), () => request({ op: "back", count: actionShown() })),
      own(word("again"), () => request({ op: "begin", settings: desk.state.settings })),
    ),
  );
}

// Transactional producers and members of a group, where the cluster has coordinators; else a button that begins one.
function makeApplications(value) {
  const client = () => ({ client: value("client") });
  const member = () => ({ member: value("member") });
  const does = (kind, values) => own(word(kind), () => act(kind, values()));
  hand.without = own(word("with-coordinators"), () => request({ op: "begin", settings: { ...desk.state.settings, coordinators: 1 } }));
  hand.with = make(
    "div", { class: "tools" },
    group(
      word("transactions"),
      choice("client", [1, 2, 3, 4].map((one) => [one, `t${(one + 1) >> 1}${one % 2 ? "" : ` (${word("second-process")})`}`]), word("producer")),
      does("init_transactions", client), does("begin_transaction", client),
      own(word("produce"), () => act("produce_in_transaction", { count: value("count"), ...client() }), word("produce_in_transaction")),
      does("commit_transaction", client), does("abort_transaction", client),
      own(word("read_committed"), () => act("read_committed", { broker: value("at") })),
    ),
    group(
      word("group"),
      choice("member", [1, 2, 3, 4].map((one) => [one, `c${one}`])),
      does("join_group", member), does("commit_offsets", member), does("leave_group", member), does("stop_member", member),
    ),
  );
  return make("div", {}, hand.without, hand.with);
}

// The action up to which the time line shows the run; all of them while it is not dragged back.
function actionShown() {
  const step = past.shown && run.count ? run.steps[run.count - 1] : null;
  return past.shown ? (step ? step.action : 0) : desk.state.actions.length;
}

function drawHand() {
  show(hand.without, !desk.state.settings.coordinators);
  show(hand.with, Boolean(desk.state.settings.coordinators));
  const known = Object.keys(desk.view().brokers).map(Number).sort((a, b) => a - b);
  if (known.join() !== hand.brokers) drawChoices(known);
  followLeader();
}

function drawChoices(known) {
  hand.brokers = known.join();
  for (const select of hand.selects) {
    const chosen = select.value;
    select.replaceChildren(...known.map((id) => make("option", { value: id }, String(id))));
    if (known.includes(Number(chosen)) && chosen !== "") select.value = chosen;
  }
}

// A client's requests go to the leader, until a person chooses another broker.
function followLeader() {
  const { leader } = Object.values(desk.view().partitions).find((one) => !one.internal);
  if (leader === null || leader === hand.leader) return;
  hand.leader = leader;
  byId("hand-at").value = String(leader);
}

const settingsFields = new Map();

function makeSettings() {
  for (const { name, least, most } of desk.vocabulary.settings) {
    let node;
    if (name === "rule") node = make("select", {}, ...desk.vocabulary.rules.map((rule, place) => make("option", { value: place }, rule)));
    else if (most === 1) node = make("select", {}, make("option", { value: 0 }, word("no")), make("option", { value: 1 }, word("yes")));
    else node = make("input", { type: "number", min: least, max: most });
    node.id = `setting-${name}`;
    node.addEventListener("change", changeSettings);
    settingsFields.set(name, node);
    byId("settings-fields").append(make("label", {}, `${word(name)} `, node));
  }
}

async function changeSettings() {
  const settings = Object.fromEntries([...settingsFields].map(([name, node]) => [name, Number(node.value)]));
  const response = await request({ op: "begin", settings });
  if (response.error) drawSettings();
}

function drawSettings() {
  for (const [name, node] of settingsFields) {
    const value = String(desk.state.settings[name]);
    if (node.value !== value) node.value = value;
  }
}
