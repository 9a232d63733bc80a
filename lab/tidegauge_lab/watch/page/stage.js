// The stage: the logs of one partition with a box for each record, its value and leader epoch; the high watermark as a
// line, how far the leader knows each follower, and the verdict. It draws what `view` holds, so that the live page, a
// recording and the page `play` share it; a source that knows no values shows offsets.
"use strict";

const STAGE_WORDS = {
  en: {
    title: "Records on each replica", full: "Full screen", small: "Leave full screen", noLeader: "no leader",
    epoch: "epoch", leader: "leader", follower: "follower", offline: "offline", unknown: "no role", down: "process is down", paused: "process is paused",
    kill: "Kill", start: "Start", hold_fetch: "Hold fetches", release_fetch: "Release", step_fetch: "One fetch",
    held: "fetches held", outOfIsr: "not in ISR", broker: "Broker", knows: "the leader knows that broker {0} has all records before offset {1}",
    earlier: "Offsets before {0} are left out.", seen: "as seen last", on: "{0} with epoch {1} at offset {2}",
    lost: "LOST: {0}, acknowledged by acks={1} at offset {2}, is on no replica.",
    missing: "{0}, acknowledged by acks={1} at offset {2}, is not on the leader (broker {3}); only broker {4} still has it.",
    unread: "A consumer has read {0}, and no replica has it any more.",
    broken: "Broken: {0}.",
    kept: "No acknowledged record is lost: {0} on broker {1}.",
    keptElse: "No acknowledged record is lost: {0}.",
    keptAll: "No acknowledged record is lost: the accountant has compared the acknowledgements with the committed records.", audited: "Found at step {0}, by the accountant.",
    since: "Since action {0}: {1}",
    acks: "acks=1 promises no more: the leader alone had acknowledged it.",
    power: "Kafka does not flush each append: records in memory alone were lost with the power.",
    unclean: "An unclean election let a replica lead that was not in sync (unclean.leader.election.enable=true).",
    "high-watermark": "Rule high-watermark: a follower truncates to its own high watermark, which lags behind the committed end (KIP-101).",
    "kip-101": "Rule kip-101: if the leader does not know the epoch, the follower asks no further and may keep its records (KIP-279).",
    "kip-279": "Rule kip-279: a replica that fetches with an old epoch is not fenced, and takes records that diverge (KIP-320).",
    own: "By a rule of your own.",
    "kip-320": "Rule kip-320, the present one: every fetch names the last epoch, and the leader says where the logs diverge.",
    memberEpoch: "member epoch {0}", reads: "reads", revoking: "to give up", awaits: "waits for {0}",
    members: "A box is a partition of the group's topic. Dashed: the member reads it, and has yet to give it up. Dotted: it waits until the other has given it up.",
    shares: "Small print on the leader's boxes, of share group {0}: s1 has it, ↺ it is available again, ✓ acknowledged, ✕ archived, done: the group is past it; the number counts deliveries.", done: "done",
    groupIs: "Group {0}: {1}, generation {2}", readsOf: "{0} reads {1}", nobody: "no member", committed: "committed: {0}",
    transactionIs: "Transactional id {0}: {1}, epoch {2}, coordinator: broker {3}", inIt: "in it: {0}",
    legend: "A box is a record, its colour the leader epoch. Dashed: above this replica's high watermark (HW), so not known to be committed here. ▲ how far the leader knows a follower.",
  },
  zh: {
    title: "各副本上的记录", full: "全屏", small: "退出全屏", noLeader: "没有 Leader",
    epoch: "epoch", leader: "Leader", follower: "Follower", offline: "离线", unknown: "没有角色", down: "进程已死", paused: "进程已暂停",
    kill: "杀死", start: "启动", hold_fetch: "扣住 fetch", release_fetch: "放开", step_fetch: "fetch 一次",
    held: "fetch 被扣住", outOfIsr: "不在 ISR", broker: "Broker", knows: "Leader 知道 broker {0} 已有位移 {1} 之前的所有记录",
    earlier: "位移 {0} 之前的记录未画出。", seen: "最后一次看到的状态", on: "{0}，epoch {1}，位移 {2}",
    lost: "丢失：{0} 已由 acks={1} 确认（位移 {2}），却不在任何副本上。",
    missing: "{0} 已由 acks={1} 确认（位移 {2}），但 Leader（broker {3}）没有它；只有 broker {4} 还有。",
    unread: "消费者读过 {0}，但已没有副本保存它。",
    broken: "不变式被破坏：{0}。",
    kept: "没有丢失任何已确认的记录：{0} 在 broker {1} 上。",
    keptElse: "没有丢失任何已确认的记录：{0}。",
    keptAll: "没有丢失任何已确认的记录：已核对客户端得到的确认与已提交的日志。", audited: "第 {0} 步核对时发现。",
    since: "自第 {0} 步起：{1}",
    acks: "acks=1 只承诺这么多：只有 Leader 确认过它。",
    power: "Kafka 不会每次追加都刷盘：只在内存里的记录随断电丢失。",
    unclean: "Unclean 选举让不同步的副本成为 Leader（unclean.leader.election.enable=true）。",
    "high-watermark": "规则 high-watermark：Follower 截断到自己的高水位，而它落后于已提交的位置（KIP-101）。",
    "kip-101": "规则 kip-101：Leader 不知道该 epoch 时，Follower 不再追问，可能保留自己的记录（KIP-279）。",
    "kip-279": "规则 kip-279：带着旧 epoch 来 fetch 的副本没有被隔离，会拿到分叉的记录（KIP-320）。",
    own: "按你自己写的规则。",
    "kip-320": "规则 kip-320（今天的规则）：每次 fetch 都带上最后的 epoch，Leader 指出日志从哪里分叉。",
    memberEpoch: "成员 epoch {0}", reads: "在读", revoking: "该交出", awaits: "等 {0}",
    members: "方框是组所读主题的一个分区。虚线：成员还在读，但该交出。点线：等另一个成员交出。",
    shares: "Leader 方框上的小字属于共享组 {0}：s1 正持有它，↺ 可再次投递，✓ 已确认，✕ 已归档，“完”表示组已越过它；数字是投递次数。", done: "完",
    groupIs: "组 {0}：{1}，generation {2}", readsOf: "{0} 读 {1}", nobody: "没有成员", committed: "已提交的位移：{0}",
    transactionIs: "transactional.id {0}：{1}，epoch {2}，协调者是 broker {3}", inIt: "事务里有 {0}",
    legend: "方框是一条记录，颜色是 Leader Epoch。虚线：高于该副本的高水位（HW），在这里还不知道是否已提交。▲ Leader 所知的 Follower 进度。",
  },
};
const stageWords = STAGE_WORDS[typeof language === "string" ? language : "en"];
const phrase = (name, ...values) => values.reduce((text, value, place) => text.replace(`{${place}}`, value), stageWords[name] ?? name);
const HW_REM = 4; // the width of the high watermark's words behind the last box
const FEWEST_BOXES = 4;
const MOST_LANES = 7; // of replicas; a partition has rarely more
// A place where lanes are drawn: of the cluster that `view` holds, and, in the page `play`, of a second one beside it.
const newScene = (list) => ({ list, at: "", name: "", lanes: new Map(), waiting: [] });
const scene = { ...newScene("lanes"), steps: [], last: 0, said: "" };

// --- The verdict ---------------------------------------------------------------------------------------------------

// Bad: it must not happen by any setting. Warned of: a loss that the settings allow. Good: nothing is lost.
function gradeOf(one) {
  if (one.grade) return one.grade; // of a recording with a story
  if (one.kind === "kept") return "good";
  if (one.kind === "broken" && one.by) return "warn";
  return ["broken", "unread", "told"].includes(one.kind) || (one.acks === "all" && one.by === "truncation") ? "bad" : "warn";
}

// A sentence of the cluster's in the page's language; the page `play` defines `spoken`.
const spokenHere = (text) => (typeof spoken === "function" ? spoken(text) : text);

function verdictLines(one) {
  const values = (one.values || []).join(", ");
  if (one.kind === "kept" && !values) return [phrase("keptAll")];
  if (one.kind === "kept") return [one.holders.length ? phrase("kept", values, one.holders.join(", ")) : phrase("keptElse", values)];
  if (one.kind === "broken") return [phrase("broken", spokenHere(one.text)), ...(one.by || one.rule ? [phrase(one.by || one.rule)] : [])];
  if (one.kind === "told") return [one.text, phrase("audited", one.step)];
  if (one.kind === "unread") return [phrase("unread", values)];
  const what = one.kind === "lost" ? phrase("lost", values, one.acks, one.offset) : phrase("missing", values, one.acks, one.offset, one.leader, one.holders.join(", "));
  const why = phrase(one.by === "truncation" ? one.rule : one.by);
  return [what, one.action === undefined ? why : `${why} ${phrase("since", one.action, spokenHere(one.said))}`];
}

function drawVerdict() {
  // The view's own; beside a live cluster what the story's accountant has found, and so at the end of a recording.
  const atEnd = recording && run.count === run.steps.length;
  const all = view.verdict || (!past.shown && view.teaching?.story?.verdict) || (atEnd && recording.story?.verdict) || [];
  const said = JSON.stringify(all);
  if (said === scene.said) return;
  scene.said = said;
  drawVerdictIn(byId("verdict"), all);
}

function drawVerdictIn(node, all) {
  const grades = all.map(gradeOf);
  const worst = ["bad", "warn", "good"].find((one) => grades.includes(one)) || "";
  show(node, all.length > 0);
  mark(node, "class", worst);
  // The fate of records comes first and large; the invariant that it broke is a remark to that.
  const isRemark = (one) => one.kind === "broken" && all.length > 1;
  const lines = all.flatMap((one) => verdictLines(one).slice(0, isRemark(one) ? 1 : 2).map((text, place) => [text, place || isRemark(one) ? "why" : `what ${gradeOf(one)}`]));
  node.replaceChildren(...lines.map(([text, kind]) => make("p", { class: kind }, text)));
}

// --- The logs ------------------------------------------------------------------------------------------------------

function stagedPartition() {
  const isShown = (name) => view.stagesInternal || !view.partitions[name].internal;
  const isInternal = (name) => Number(view.partitions[name].internal);
  const names = Object.keys(view.partitions).filter(isShown).sort((one, other) => isInternal(one) - isInternal(other) || compare(one, other));
  const select = byId("stage-partition");
  if (scene.names !== names.join("\n")) {
    scene.names = names.join("\n");
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(chosen)) select.value = chosen;
    show(select.parentNode, names.length > 1);
  }
  return names.length ? view.partitions[select.value || names[0]] : null;
}

// Whether the next drawing continues the last one: only then a record that is missing was truncated.
function followsLast() {
  const count = past.shown ? run.count : run.steps.length;
  const before = scene.steps[scene.last - 1];
  const same = !before || (run.steps[scene.last - 1]?.text === before.text && run.steps[scene.last - 1].time === before.time);
  const follows = count >= scene.last && same;
  Object.assign(scene, { steps: run.steps, last: count });
  return follows;
}

// Who reads what in a group, and how far a transaction is: a line each, beside the records that they are about.
const MOST_OWNERS = 4;

function ownerLines() {
  const found = [];
  for (const one of Object.values(view.groups || {}).filter((each) => each.assignmentEpoch == null && (each.members.length || each.partitions.length))) {
    const members = one.members.map((each) => phrase("readsOf", each.client || each.instance || each.id, each.partitions.join(", ") || "-"));
    const offsets = one.partitions.filter((each) => each.committed !== null).map((each) => `${each.partition} ${each.committed}`);
    found.push([phrase("groupIs", one.group, one.state, one.generation), members.join("; ") || phrase("nobody"), ...(offsets.length ? [phrase("committed", offsets.join(", "))] : [])]);
  }
  for (const one of Object.values(view.transactions || {})) {
    const inIt = one.partitions.map((each) => each.partition).join(", ");
    found.push([phrase("transactionIs", one.id, one.state, one.producerEpoch, one.coordinator), ...(inIt ? [phrase("inIt", inIt)] : [])]);
  }
  return found.slice(-MOST_OWNERS);
}

function drawOwners() {
  const lines = ownerLines();
  const said = JSON.stringify(lines);
  if (said === scene.owners) return;
  scene.owners = said;
  show(byId("stage-owners"), lines.length > 0);
  byId("stage-owners").replaceChildren(...lines.map(([first, ...rest]) => make("li", {}, make("b", {}, first), ...rest.map((one) => ` · ${one}`))));
}

function drawStage() {
  drawVerdict();
  const partition = stagedPartition();
  show(byId("stage"), partition !== null);
  const follows = followsLast();
  if (!partition) return;
  write(byId("stage-state"), stateOf(partition));
  drawOwners();
  const share = Object.values(view.shares || {}).find((one) => one.partition === `${partition.topic}-${partition.partition}`);
  const hasMembers = drawMemberLanes(partition.high === partition.low);
  show(byId("lanes"), !hasMembers);
  write(byId("stage-legend"), hasMembers ? phrase("members") : `${phrase("legend")}${share ? ` ${phrase("shares", share.group)}` : ""}`);
  const from = drawLanes(scene, view, partition, follows);
  write(byId("stage-left-out"), from > partition.low ? phrase("earlier", from) : "");
}

function stateOf(partition) {
  const leader = partition.leader === null ? phrase("noLeader") : `${phrase("leader")} ${partition.leader}`;
  return `${leader}, ${phrase("epoch")} ${partition.leaderEpoch ?? "?"}, ISR ${ids(partition.isr || [])}`;
}

// Draw the replicas of a partition as lanes, and return the first offset that is drawn; `shown` is the view that it is of.
// A drawing may change the lanes' buttons, and so the room for boxes: then they are drawn once more.
function drawLanes(on, shown, partition, follows) {
  on.name = `${partition.topic}-${partition.partition}`;
  const brokers = partition.assigned.slice(0, MOST_LANES);
  const wanted = `${on.name} ${brokers.join()}`;
  if (on.at !== wanted) {
    on.at = wanted;
    on.lanes = new Map(brokers.map((id) => [id, makeLane(id, on)]));
    byId(on.list).replaceChildren(...[...on.lanes.values()].map((lane) => lane.node));
  }
  const drawFrom = (from) => {
    for (const [id, lane] of on.lanes) drawLane(lane, shown, partition, id, from, follows);
    return from;
  };
  const from = drawFrom(firstBox(partition, on));
  const fits = firstBox(partition, on);
  return fits === from ? from : drawFrom(fits);
}

// The first offset that is drawn: as many boxes as there is room for in the narrowest lane, the newest ones.
function firstBox(partition, on) {
  const widths = [...on.lanes.values()].map((lane) => lane.log.clientWidth).filter(Boolean);
  const cell = Number.parseFloat(getComputedStyle(byId(on.list)).getPropertyValue("--cell-rem")) || 4;
  const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  const width = widths.length ? Math.min(...widths) : 600;
  const room = Math.max(FEWEST_BOXES, Math.floor((width - HW_REM * rem) / (cell * rem)));
  return Math.max(partition.low, partition.high - room);
}

function makeLane(id, on) {
  const lane = {
    id, boxes: new Map(), marks: new Map(),
    node: make("li", { class: "lane" }),
    name: make("b", {}, `${phrase("broker")} ${id}`),
    role: make("span", { class: "lane-role" }),
    flags: make("span", { class: "lane-flags" }),
    log: make("div", { class: "lane-log" }),
    hw: make("span", { class: "lane-hw" }),
    now: "",
    held: false,
    tools: make("div", { class: "buttons lane-tools" }),
  };
  const does = (action) => () => ({ action: action(), broker: id, partition: on.name });
  const to = { path: "action", say: sayOnStage };
  lane.kills = () => (lane.now === "down" ? "start" : "kill");
  lane.holds = () => (lane.held ? "release_fetch" : "hold_fetch");
  lane.kill = button("", "", () => ({ action: lane.kills(), broker: id }), to);
  lane.hold = button("", "", does(lane.holds), to);
  lane.step = button(phrase("step_fetch"), `${phrase("step_fetch")}: ${phrase("broker")} ${id}`, does(() => "step_fetch"), to);
  lane.tools.append(lane.kill, lane.hold, lane.step);
  lane.log.append(lane.hw);
  lane.node.append(make("div", { class: "lane-who" }, lane.name, lane.role, lane.flags), lane.log, lane.tools);
  return lane;
}

function sayOnStage(text, bad = false) {
  byId("stage-said").classList.toggle("bad", bad);
  write(byId("stage-said"), text);
}

function drawTools(lane, replica, state, isSwitchable) {
  Object.assign(lane, { now: state, held: Boolean(replica.held) });
  show(lane.tools, isSwitchable);
  const name = (node, action) => {
    write(node, phrase(action));
    mark(node, "aria-label", `${phrase(action)}: ${phrase("broker")} ${lane.id}`);
  };
  name(lane.kill, lane.kills());
  lane.kill.classList.toggle("harm", state !== "down");
  name(lane.hold, lane.holds());
  show(lane.hold, lane.held || (replica.role === "follower" && state !== "down"));
  show(lane.step, lane.held && replica.role === "follower" && !replica.old);
}

// What a share group has said of records at the leader, as the small print of their boxes.
const SHARE_MARKS = { available: "↺", acknowledged: "✓", archived: "✕", acquired: "" };

function drawShared(records, share) {
  for (const one of records) {
    const range = share && share.records.find(({ first, last }) => first <= one.offset && one.offset <= last);
    const count = range && range.count ? ` ${range.count}` : "";
    const member = range && range.state === "acquired" ? (range.member || "").split("-")[0].slice(0, 4) : "";
    if (range && range.state in SHARE_MARKS && range.count) Object.assign(one, { shared: `${SHARE_MARKS[range.state]}${member}${count}`, state: range.state });
    else if (share && one.offset < share.start) Object.assign(one, { shared: phrase("done"), state: "done" });
  }
}

function drawLane(lane, shown, partition, id, from, follows) {
  const replica = partition.replicas[id] || { role: "unknown" };
  const broker = shown.brokers[id];
  const state = broker ? broker.state : "down";
  const leads = replica.role === "leader" && state !== "down"; // of a dead process the role is as it was seen last
  mark(lane.node, "class", `lane ${state} ${leads ? "leads" : ""}`);
  write(lane.role, state === "down" ? phrase("down") : `${phrase(replica.role)}${Number.isInteger(replica.epoch) ? `, ${phrase("epoch")} ${replica.epoch}` : ""}`);
  const flags = [state === "paused" ? phrase("paused") : "", replica.isr === false ? phrase("outOfIsr") : "", replica.held ? phrase("held") : ""];
  write(lane.flags, flags.filter(Boolean).join(", "));
  const known = Number.isInteger(replica.leo);
  const records = known ? recordsOf(replica, from, `${partition.topic}-${partition.partition}`) : [];
  drawShared(records, Object.values(shown.shares || {}).find((one) => one.partition === `${partition.topic}-${partition.partition}` && one.broker === id));
  drawBoxes(lane, records, replica, follows);
  drawTools(lane, replica, state, Boolean(shown.switchable));
  show(lane.hw, known && replica.hw !== null && replica.hw >= from);
  if (known && replica.hw !== null) {
    style(lane.hw, "--place", String(replica.hw - from));
    write(lane.hw, `HW ${replica.hw}`);
  }
  drawReaches(lane, leads && known ? replica.knows || {} : {}, from);
}

// Offset, value and epoch of each record from an offset on. A source that reads no values names records by offset.
// In a recording of a story its expectations name them, by offset and epoch.
function recordsOf(replica, from, partition) {
  const found = [];
  const told = (recording && recording.story && recording.story.values && recording.story.values[partition]) || {};
  for (let offset = Math.max(from, replica.logStart || 0); offset < replica.leo; offset += 1) {
    const own = replica.records && replica.records[offset - (replica.logStart || 0)];
    const epoch = own ? own[1] : (replica.epochs.findLast(([, start]) => start <= offset) || [0])[0];
    const value = own ? own[0] : told[`${offset}@${epoch}`];
    found.push({ offset, place: offset - from, value: value ?? String(offset), epoch, plain: value === undefined });
  }
  return found;
}

function drawBoxes(lane, records, replica, follows) {
  const wanted = new Map(records.map((one) => [one.offset, one]));
  for (const [offset, box] of lane.boxes) {
    const now = wanted.get(offset);
    if (now && now.value === box.value && now.epoch === box.epoch) continue;
    lane.boxes.delete(offset);
    const isTruncated = follows && (now || offset >= (replica.leo ?? 0));
    if (isTruncated) fall(box.node);
    else box.node.remove();
  }
  for (const one of records) {
    let box = lane.boxes.get(one.offset);
    if (!box) {
      box = { ...one, node: make("span", { class: "box" }, make("b", {}, one.value), make("small", {}, `@${one.epoch}`)) };
      lane.boxes.set(one.offset, box);
      lane.log.append(box.node);
      if (follows) box.node.classList.add("arrives");
    }
    const open = replica.hw !== null && one.offset >= replica.hw;
    write(box.node.lastChild, one.shared || `@${one.epoch}`);
    for (const state of [...Object.keys(SHARE_MARKS), "done"]) box.node.classList.toggle(state, one.state === state);
    for (const [name, on] of [[`e${one.epoch % COLOURS}`, true], ["open", open], ["plain", one.plain], ["long", one.value.length > 4], ["two", one.value.includes(" ")]]) box.node.classList.toggle(name, on);
    style(box.node, "--place", String(one.place));
    mark(box.node, "title", phrase("on", one.plain ? "" : one.value, one.epoch, one.offset));
  }
}

// A truncated record falls and fades; with reduced motion it is struck through for as long.
function fall(node) {
  node.classList.remove("arrives");
  node.classList.add("falls");
  node.setAttribute("aria-hidden", "true");
  setTimeout(() => node.remove(), 1400);
}

// How far the leader knows each follower: marks below its records.
function drawReaches(lane, knows, from) {
  for (const [id, node] of lane.marks) {
    if (id in knows && Number.isInteger(knows[id])) continue;
    node.remove();
    lane.marks.delete(id);
  }
  const shown = Object.entries(knows).filter(([, end]) => Number.isInteger(end) && end >= from);
  const turns = new Map(); // marks at one offset are placed side by side
  for (const [id, end] of shown) {
    turns.set(end, (turns.get(end) ?? -1) + 1);
    if (!lane.marks.has(id)) {
      lane.marks.set(id, make("span", { class: "reach" }));
      lane.log.append(lane.marks.get(id));
    }
    const node = lane.marks.get(id);
    write(node, `▲${id}`);
    mark(node, "title", phrase("knows", id, end));
    style(node, "--place", String(end - from));
    style(node, "--turn", String(turns.get(end)));
  }
}

// --- Messages that fly ---------------------------------------------------------------------------------------------

const FLIGHT_MS = 700;
const MOST_FLIGHTS = 14;
const isStill = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

// Let messages fly from lane to lane, one after the other: each `{from, to, text, lost}`; a client is above the lanes.
function fly(messages, speed = 1) {
  scene.waiting.splice(0).forEach(clearTimeout);
  if (isStill() || document.hidden) return;
  const shown = messages.filter((one) => one.from !== one.to).slice(-MOST_FLIGHTS);
  scene.waiting = shown.map((one, place) => setTimeout(() => flyOne(one, place % 3, speed), (place * FLIGHT_MS) / (3 * speed)));
}

function flyOne({ from, to, text, lost }, slot, speed) {
  const frame = byId("lanes").getBoundingClientRect();
  const y = (id) => {
    const lane = scene.lanes.get(id);
    if (!lane) return 0;
    const box = lane.node.getBoundingClientRect();
    return box.top - frame.top + box.height / 2;
  };
  const node = make("span", { class: lost ? "flies lost" : "flies", "aria-hidden": "true" }, text);
  style(node, "--slot", String(slot));
  byId("lanes").append(node);
  const end = lost ? y(from) + (y(to) - y(from)) / 2 : y(to);
  const moves = [{ transform: `translateY(${y(from)}px)`, opacity: 1 }, { transform: `translateY(${end}px)`, opacity: 1, offset: 0.8 }, { transform: `translateY(${end}px)`, opacity: 0 }];
  node.animate(moves, { duration: FLIGHT_MS / speed, easing: "ease-in-out" }).finished.then(() => node.remove(), () => node.remove());
}

// --- Full screen ---------------------------------------------------------------------------------------------------

// Large type, and nothing but the verdict, the story, the stage and the time line: for a room.
function setStaged(wanted) {
  document.body.classList.toggle("staged", wanted);
  mark(byId("full"), "aria-pressed", String(wanted));
  write(byId("full"), phrase(wanted ? "small" : "full"));
  if (wanted && document.fullscreenEnabled) document.documentElement.requestFullscreen().catch(() => {});
  if (!wanted && document.fullscreenElement) document.exitFullscreen();
  drawStage();
}

// A key that is no text: not while a field has the focus, nor with a modifier.
function isPlainKey(pressed) {
  const typed = pressed.target.closest?.("input, select, textarea");
  return !typed && !pressed.ctrlKey && !pressed.metaKey && !pressed.altKey;
}

write(byId("stage-title"), phrase("title"));
write(byId("stage-legend"), phrase("legend"));
write(byId("full"), phrase("full"));
byId("full").addEventListener("click", () => setStaged(!document.body.classList.contains("staged")));
byId("stage-partition").addEventListener("change", drawStage);
document.addEventListener("fullscreenchange", () => { if (!document.fullscreenElement) setStaged(false); });
document.addEventListener("keydown", (pressed) => {
  if (pressed.key === "f" && isPlainKey(pressed)) setStaged(!document.body.classList.contains("staged"));
  else if (pressed.key === "Escape" && document.body.classList.contains("staged")) setStaged(false);
});
window.addEventListener("resize", () => { if (scene.at) drawStage(); });
