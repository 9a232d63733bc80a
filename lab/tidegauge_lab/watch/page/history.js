// The run so far, step by step, and the cluster after any of the steps. A step is an event with a patch: what it changed.
// The server folds events into patches; here they are only put in and taken out again.
"use strict";

const STEPS_KEPT = 60000;
const run = {
  base: {}, // the view before the first step
  steps: [], // oldest first; `at`: its time, never before the time of the previous step
  count: 0, // how many of them are in `state`
  state: {},
  undo: [], // by step: what takes it out of the state again
};

function beginRun(base, steps) {
  Object.assign(run, { base, steps: [], count: 0, state: structuredClone(base), undo: [] });
  extendRun(steps);
}

// Clocks of several brokers may differ by a little; the order of the steps is causal, and time must not run back.
function extendRun(steps) {
  for (const step of steps) {
    const before = run.steps.length ? run.steps[run.steps.length - 1].at : 0;
    run.steps.push({ ...step, at: Math.max(before, step.time) });
  }
  if (run.steps.length > STEPS_KEPT && run.count === 0) forget(run.steps.length - STEPS_KEPT / 2);
}

// Of a page that is open for long, the oldest steps go into the base. The step on view stays.
function forget(count) {
  for (const step of run.steps.splice(0, count)) applyPatch(run.base, step.patch);
  run.state = structuredClone(run.base);
}

// Return the patch that takes this one out again.
function applyPatch(state, patch) {
  const undo = [];
  for (const [path, ...value] of patch) {
    const place = path.slice(0, -1).reduce((part, key) => part[key], state);
    const key = path[path.length - 1];
    undo.unshift(key in place ? [path, place[key]] : [path]);
    if (value.length) place[key] = structuredClone(value[0]);
    else delete place[key];
  }
  return undo;
}

// Restore the state after this many steps; return the difference, in the form of a change from the server.
function seek(count) {
  const touched = new Map(); // path of an entry, as text -> path
  const touch = (patch) => patch.forEach(([path]) => touched.set(path.slice(0, 2).join("\n"), path.slice(0, 2)));
  while (run.count < count) {
    const { patch } = run.steps[run.count];
    run.undo[run.count] = applyPatch(run.state, patch);
    run.count += 1;
    touch(patch);
  }
  while (run.count > count) {
    run.count -= 1;
    applyPatch(run.state, run.undo[run.count]);
    touch(run.steps[run.count].patch);
  }
  const change = {};
  for (const [key, name] of touched.values()) {
    if (!ENTRIES.includes(key)) change[key] = run.state[key];
    else (change[key] ??= {})[name] = run.state[key][name] ?? null;
  }
  return change;
}

// How many steps had happened at a time.
function countAt(time) {
  let [low, high] = [0, run.steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.steps[middle].at <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}
