// A lab beside its cluster: question, prediction, commands to copy, the cluster's own check, and why.
"use strict";

async function makeLab(name) {
  const { ok, value: page } = await source.lab(name);
  if (!ok) return { node: make("p", { class: "problem" }, page.error.message), draw: () => {} };
  const part = (title, ...nodes) => make("section", {}, make("h3", {}, title), ...nodes);
  const folded = (title) => make("details", { class: "prose" }, make("summary", {}, title), ...prose(page.sections[title]));
  const desk = makeBench(page.name);
  const steps = make("ol", { class: "steps" }, ...stepsOf(prose(page.sections.Do)));
  const node = make("div", { class: "prose" },
    part("Question", ...prose(page.sections.Question)),
    part("Predict", ...prose(page.sections.Predict), makePrediction(page.name)),
    part("Do", desk.node, steps),
    part("Check", ...desk.check),
    folded("What you see"),
    folded("Why"),
  );
  for (const pre of node.querySelectorAll("details pre")) if (isCommand(pre)) pre.before(makeCopy(pre));
  return { node, draw: desk.draw };
}

function makePrediction(name) {
  const key = `tidegauge.prediction.${name}`;
  const field = make("textarea", { id: "prediction", rows: "3", autocomplete: "off" });
  try { // a browser may keep nothing
    field.value = localStorage.getItem(key) || "";
    field.addEventListener("input", () => localStorage.setItem(key, field.value));
  } catch { /* the field works, and forgets */ }
  return make("label", { class: "prediction" }, "Your prediction, kept in this browser alone", field);
}

const isCommand = (pre) => pre.firstElementChild && !pre.firstElementChild.classList.contains("language-text");

// A step is the text before a command, the command, and its output.
function stepsOf(nodes) {
  const steps = [];
  let complete = true;
  for (const node of nodes) {
    if (/^tidegauge lab start \S+\n?$/.test(node.textContent)) continue; // the button has done it
    const command = node.tagName === "PRE" && isCommand(node);
    const output = node.tagName === "PRE" && !command;
    if ((complete && !output) || !steps.length) {
      steps.push(make("li"));
      complete = false;
    }
    const step = steps[steps.length - 1];
    if (command) {
      step.append(makeCopy(node), node);
      complete = true;
    } else if (output) {
      node.setAttribute("aria-label", "It printed");
      node.setAttribute("role", "group");
      step.append(make("p", { class: "printed" }, "Printed, when this page was written:"), node);
    } else step.append(node);
  }
  return steps;
}

function makeCopy(pre) {
  const node = make("button", { type: "button", class: "copy" }, "Copy");
  const text = pre.textContent.trimEnd();
  node.setAttribute("aria-label", `Copy: ${text.split("\n", 1)[0]}`);
  node.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      write(node, "Copied");
    } catch { // the browser does not allow it: the text is selected, to be copied by hand
      window.getSelection().selectAllChildren(pre);
      write(node, "Selected");
    }
    setTimeout(() => write(node, "Copy"), 2000);
  });
  return node;
}

// Start, check and stop, and what the cluster says.
function makeBench(name) {
  const said = makeSaid();
  const verdict = makeSaid();
  const findings = make("ul", { class: "findings" });
  const state = make("p", { class: "hint" });
  const hints = make("div", { class: "hint" });
  const where = make("pre", { tabindex: "0" }, make("code", { class: "language-sh" }));
  const copied = make("div");
  const starts = button("Start this lab", "", () => ({ do: "start", lab: name }), { path: "lab", say: said.tell });
  const stops = button("Stop, and delete its cluster", "", () => ({ do: "stop" }), { path: "lab", say: said.tell });
  const checks = button("Check", "", () => ({ do: "check", lab: name }), {
    path: "lab",
    say: (text, bad, told) => {
      findings.replaceChildren(...(told.findings || []).map(makeFinding));
      verdict.tell(text, bad);
    },
  });
  const draw = (teaching) => {
    const running = teaching.lab;
    const here = Boolean(running && running.name === name);
    able(starts, !running && !teaching.story);
    able(stops, here && !teaching.story);
    able(checks, here);
    write(state, here ? "Its cluster is beside this text; type the commands in a terminal, or use the buttons of the page."
      : running ? `The cluster belongs to lab ${running.name}: stop it there, then start this one.`
        : `It needs a cluster of its own in ${teaching.directory}.`);
    write(hints, here ? running.hints.slice(1).join(" ") : "");
    const line = `export TIDEGAUGE_DIR=${quoted(teaching.directory)}`;
    if (where.textContent !== line) {
      write(where.firstChild, line);
      copied.replaceChildren(make("p", {}, "Once in each terminal, so that the commands find this cluster:"), makeCopy(where), where);
    }
    show(copied, here);
    if (!here) {
      findings.replaceChildren();
      verdict.tell("", false);
    }
  };
  return {
    node: make("div", { class: "bench" }, make("div", { class: "buttons" }, starts, stops), said.node, state, hints, copied),
    check: [make("p", {}, "The cluster says itself what is done: it looks at brokers, logs and events, never at what was typed."), make("div", { class: "buttons" }, checks), findings, verdict.node],
    draw,
  };
}

const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

function makeFinding(found) {
  const mark = make("b", { class: found.holds ? "yes" : "no" }, found.holds ? "yes" : "no");
  return make("li", {}, mark, ` ${found.text}.`);
}
