// What the scripts of the page `play` share: the state that the worker gave last, and buttons that ask it.
"use strict";

const desk = {
  state: null, // the last response of the worker
  vocabulary: null, // what can be done and set, with bounds
  story: null, // the story that is played
  drawn: 0,
  flown: 0, // number of the newest message that was drawn
  before: " ", // the schedule that was drawn last
  speed: 1, // of a story that plays on, and of what flies
  view: () => live, // the cluster as it is now, also while a moment of the past is shown
};

// A button that does something of this page alone; it takes no second press before the first has its effect.
function own(text, does, label = "") {
  const node = make("button", { type: "button" }, text);
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", async () => {
    if (node.getAttribute("aria-disabled") === "true" || node.getAttribute("aria-busy") === "true") return;
    node.setAttribute("aria-busy", "true");
    try {
      await does();
    } finally {
      node.removeAttribute("aria-busy");
    }
  });
  return node;
}

const sayHere = (text, bad = false) => sayOnStage(text, bad);

// Ask the worker, show its response, and report a refusal.
async function request(wanted) {
  const response = source.take(await source.ask(wanted));
  sayHere(response.error || response.said || "", Boolean(response.error));
  return response;
}

const act = (kind, values = {}) => request({ op: "do", action: { do: kind, ...values } });
