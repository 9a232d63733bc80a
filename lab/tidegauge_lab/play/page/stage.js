// What the scripts of the page `play` share: the state that the worker gave last, and buttons that ask it.
"use strict";

const stage = {
  state: null, // the last response of the worker
  vocabulary: null, // what can be done and set, with bounds
  story: null, // the story that is played
  drawn: 0,
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

function sayHere(text, bad = false) {
  byId("play-said").classList.toggle("bad", bad);
  write(byId("play-said"), text);
}

// Ask the worker, show what it responds, and say what was refused.
async function request(wanted) {
  const response = source.take(await source.ask(wanted));
  sayHere(response.error || response.said || "", Boolean(response.error));
  return response;
}

const act = (kind, values = {}) => request({ op: "do", action: { do: kind, ...values } });
