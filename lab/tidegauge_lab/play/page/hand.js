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

const MEMBERS = [1, 2, 3, 4];
const WITH_SHARE_GROUPS = 2; // value of the setting `coordinators`

// Transactional producers and members of groups, where the cluster has coordinators; else a button that begins one.
function makeApplications(value) {
  const client = () => ({ client: value("client") });
  const member = () => ({ member: value("member") });
  const consumer = () => ({ member: value("consumer") });
  const does = (kind, values, name = kind, of = "group") => own(word(name), () => act(kind, values()), `${word(name)}: ${word(of)}`);
  const asProducer = (kind) => does(kind, client, kind, "transactions");
  const asConsumer = (kind, name = kind) => does(kind, consumer, name, "consumer-group");
  const beginWith = (name, coordinators) => own(word(name), () => request({ op: "begin", settings: { ...desk.state.settings, coordinators } }));
  hand.without = beginWith("with-coordinators", 1);
  hand.withoutShares = beginWith("with-share-groups", WITH_SHARE_GROUPS);
  hand.with = make(
    "div", { class: "tools" },
    group(
      word("transactions"),
      choice("client", [1, 2, 3, 4].map((one) => [one, `t${(one + 1) >> 1}${one % 2 ? "" : ` (${word("second-process")})`}`]), word("producer")),
      asProducer("init_transactions"), asProducer("begin_transaction"),
      own(word("produce"), () => act("produce_in_transaction", { count: value("count"), ...client() }), word("produce_in_transaction")),
      asProducer("commit_transaction"), asProducer("abort_transaction"),
      own(word("read_committed"), () => act("read_committed", { broker: value("at") })),
    ),
    group(
      word("group"),
      choice("member", MEMBERS.map((one) => [one, `c${one}`])),
      does("join_group", member), does("commit_offsets", member), does("leave_group", member), does("stop_member", member),
    ),
    group(
      word("consumer-group"),
      choice("consumer", MEMBERS.map((one) => [one, `k${one}`]), word("member")),
      asConsumer("join_consumers", "join_group"), asConsumer("beat_consumer", "beat"),
      asConsumer("keep_partitions"), asConsumer("revoke_partitions"), asConsumer("commit_as_consumer", "commit_offsets"),
      asConsumer("leave_consumers", "leave_group"), asConsumer("stop_consumer", "stop_member"),
    ),
  );
  hand.withShares = makeShareMembers(value);
  return make("div", {}, hand.without, hand.with, hand.withoutShares, hand.withShares);
}

// Members of the share group: they fetch, and say what became of a record.
function makeShareMembers(value) {
  const member = () => ({ member: value("sharer") });
  const does = (kind, name = kind) => own(word(name), () => act(kind, member()), `${word(name)}: ${word("share-group")}`);
  const says = (kind) => own(word(kind), () => act(kind, { ...member(), offset: value("offset") }));
  return group(
    word("share-group"),
    choice("sharer", MEMBERS.map((one) => [one, `s${one}`]), word("member")),
    does("join_share_group", "join_group"), does("beat_share_member", "beat"),
    numberField("most", 1, 20, 1),
    own(word("share_fetch"), () => act("share_fetch", { count: value("most"), ...member() })),
    numberField("offset", 0, 99999, 0),
    says("accept"), says("release"), says("reject"), says("renew"),
    does("leave_share_group", "leave_group"), does("stop_share_member", "stop_member"),
  );
}

// The offset that the chosen member may speak of: the first that it has, unless it has the one that is there.
function followShare() {
  const chosen = `s${hand.fields.sharer()}-`;
  const own = Object.values(desk.view().shares || {}).flatMap((share) => share.records)
    .filter((range) => range.state === "acquired" && range.member?.startsWith(chosen));
  const offset = hand.fields.offset();
  if (own.length && !own.some((range) => range.first <= offset && offset <= range.last)) byId("hand-offset").value = String(own[0].first);
}

// The action up to which the time line shows the run; all of them while it is not dragged back.
function actionShown() {
  const step = past.shown && run.count ? run.steps[run.count - 1] : null;
  return past.shown ? (step ? step.action : 0) : desk.state.actions.length;
}

function drawHand() {
  const { coordinators } = desk.state.settings;
  show(hand.without, !coordinators);
  show(hand.with, coordinators > 0);
  show(hand.withoutShares, coordinators < WITH_SHARE_GROUPS);
  show(hand.withShares, coordinators === WITH_SHARE_GROUPS);
  followShare();
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
    else if (name === "coordinators") node = make("select", {}, ...["no", "coordinators", "and-share-groups"].map((one, value) => make("option", { value }, word(one))));
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
