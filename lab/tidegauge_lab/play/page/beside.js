// A second cluster beside the one on the stage: the same actions by another truncation rule, on the same time line.
"use strict";

const beside = { ...newScene("beside-lanes"), rule: -1, moments: [], known: "", last: -1 };

function makeBeside() {
  const options = desk.vocabulary.rules.map((name, place) => make("option", { value: place }, name));
  const select = make("select", { id: "beside-rule" }, make("option", { value: -1 }, word("no")), ...options);
  select.addEventListener("change", () => setBeside(Number(select.value)));
  byId("story-buttons").after(make("label", { id: "beside-choice" }, `${word("beside")} `, select));
}

// Show a second cluster by this rule, or none.
async function setBeside(rule) {
  beside.rule = rule;
  byId("beside-rule").value = String(rule);
  drawTale();
  await followBeside();
}

// The worker repeats the first cluster's actions on the second; a late response is discarded.
async function followBeside() {
  const wanted = beside.rule < 0 ? "" : `${beside.rule} ${desk.state.schedule}`;
  if (wanted === beside.known) return;
  beside.known = wanted;
  const response = wanted ? await source.ask({ op: "beside", rule: beside.rule }) : { moments: [] };
  if (beside.known !== wanted) return;
  if (response.error) sayHere(response.error, true);
  beside.moments = response.moments || [];
  drawBeside();
}

function drawBeside() {
  const number = Math.min(desk.shownAction, beside.moments.length - 1);
  const moment = beside.moments[number];
  show(byId("beside"), Boolean(moment));
  document.body.classList.toggle("paired", Boolean(moment));
  if (!moment) return;
  const partition = Object.values(moment.partitions).find((one) => !one.internal);
  const shown = { ...moment, switchable: false };
  write(byId("beside-title"), `${word("by-rule")} ${desk.vocabulary.rules[beside.rule]}`);
  write(byId("own-title"), `${word("by-rule")} ${desk.state.rule}`);
  write(byId("beside-state"), stateOf(partition));
  show(byId("beside-verdict"), moment.verdict.length > 0);
  drawVerdictIn(byId("beside-verdict"), moment.verdict);
  write(byId("beside-said"), moment.refused ? `${word("refused-there")} ${spoken(moment.refused)}` : "");
  drawLanes(beside, shown, partition, number >= beside.last);
  beside.last = number;
}
