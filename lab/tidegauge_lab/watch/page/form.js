// The form of the page: any declared fault, or action inside a broker, with a field for each of its parameters. It is
// built from the vocabulary that the server gives as JSON Schema; nothing here names a fault or a parameter.
"use strict";

let declared = { faults: {}, actions: {} };
const texts = (action) => declared.actions[action]["x-button"];
const form = { fields: new Map(), brokers: "" }; // fields: name of the parameter -> value, or undefined if none is given

function makeForm() {
  const inside = Object.entries(declared.actions).filter(([, kind]) => kind["x-acts-on"].includes("broker"));
  form.kinds = { ...declared.faults, ...Object.fromEntries(inside) };
  for (const [name, kind] of Object.entries(form.kinds)) {
    byId("fault").append(make("option", { value: name }, kind["x-button"] || name.replaceAll("_", "-")));
  }
  byId("fault").addEventListener("change", drawFields);
  byId("fault-do").append(button("Do it", "Do it: the chosen fault or action", () => {
    const values = [...form.fields].map(([name, value]) => [name, value()]).filter(([, value]) => value !== undefined);
    return { action: byId("fault").value, broker: Number(byId("fault-broker").value), ...Object.fromEntries(values) };
  }));
  drawFields();
}

function drawForm() {
  show(byId("faults"), Boolean(view.switchable || view.greyed));
  able(byId("fault-do").firstChild, view.switchable);
  const brokers = Object.keys(view.brokers).map(Number).sort((a, b) => a - b);
  if (brokers.join() === form.brokers) return;
  form.brokers = brokers.join();
  const chosen = byId("fault-broker").value;
  byId("fault-broker").replaceChildren(...brokers.map((id) => make("option", {}, String(id))));
  if (brokers.includes(Number(chosen))) byId("fault-broker").value = chosen || String(brokers[0]);
}

function drawFields() {
  const kind = form.kinds[byId("fault").value];
  form.fields.clear();
  write(byId("fault-meaning"), `${kind.description}.`);
  const made = Object.entries(kind.properties).filter(([name]) => name !== "broker").map(([name, about]) => {
    const field = makeField(about, kind.required.includes(name));
    form.fields.set(name, field.value);
    const unit = about["x-unit"] ? `, ${about["x-unit"]}` : "";
    const label = make("label", about.type === "boolean" ? { class: "check" } : {});
    label.append(`${name.replaceAll("_", " ").replace(/ ms$/, "")}${unit} `, field.node);
    const hint = make("span", { class: "hint", id: `fault-${name}` }, `${about.description}${kind.required.includes(name) ? " (required)" : ""}`);
    mark(field.node, "aria-describedby", hint.id);
    return make("div", { class: "field" }, label, hint);
  });
  byId("fault-fields").replaceChildren(...made);
}

// A field and its value: undefined if the parameter is left out. The server reports an invalid value in a sentence.
function makeField(about, required) {
  if (about.type === "boolean") {
    const node = make("input", { type: "checkbox" });
    return { node, value: () => node.checked || undefined };
  }
  if (about.enum) {
    const node = make("select", {}, ...(required ? about.enum : ["", ...about.enum]).map((one) => make("option", { value: one }, one || "not given")));
    if (about.default !== undefined) node.value = about.default;
    return { node, value: () => node.value || undefined };
  }
  if (about.type === "integer" || about.type === "number") {
    const node = make("input", { type: "number", min: about.minimum ?? about.exclusiveMinimum, max: about.maximum, step: about.type === "integer" ? 1 : "any" });
    if (about.default !== undefined) node.value = about.default;
    return { node, value: () => (node.value === "" ? undefined : Number(node.value)) };
  }
  const words = about.anyOf ? about.anyOf.find((one) => one.enum).enum : [];
  const node = make("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: words.length ? [...words, "0,1"].join(", ") : about.pattern ? "orders-0" : "" });
  const items = (text) => text.split(",").map((one) => one.trim());
  return {
    node,
    value: () => {
      const text = node.value.trim();
      if (text === "") return undefined;
      if (about.type === "array") return items(text);
      return words.length && !words.includes(text) ? items(text).map(Number) : text;
    },
  };
}
