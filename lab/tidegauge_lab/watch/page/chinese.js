// Translates the English sentences of brokers, events and views: texts, titles and labels are replaced as they come into the
// page, by the sentences of sentences.json. Names, requests and settings have no translation there, and stay.
"use strict";

const chinese = { plain: new Map(), templates: [], known: new Map() };
const HAN = /[\u4e00-\u9fff]/;
const LABELS = ["title", "aria-label", "placeholder"];
const MOST_KNOWN = 4000; // translations that are kept; then it begins again
const DEEPEST = 3; // of translations within translations

const PROSE = /[a-z]{2} [a-z]{2,} [a-z]{2}/; // English words in a row; names, requests and settings have none
const MISSING_SPACE = /(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])/g;
const NEEDLESS_SPACE = /(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])/g;

const spaced = (text) => text.replace(MISSING_SPACE, " ").replace(NEEDLESS_SPACE, "");
const withValues = (text, values) => text.replace(/\{(\d)\}/g, (_, place) => values[place] ?? "");

function learnChinese(sentences) {
  chinese.known.clear();
  for (const [english, text] of Object.entries(sentences)) {
    const parts = english.split("{}");
    if (parts.length === 1) chinese.plain.set(english, text);
    else {
      const pattern = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+?)");
      chinese.templates.push({ parts, size: english.length, pattern: new RegExp(`^${pattern}$`, "s"), text });
    }
  }
  chinese.templates.sort((one, other) => other.size - one.size); // the one that says most comes first
}

// The whole text, sentence by sentence, or clause by clause; null if a part of it is not known. Of a strict search the
// values have no English prose left.
function inChinese(text, strict, depth = 0) {
  if (chinese.plain.has(text)) return chinese.plain.get(text);
  const found = allInChinese(text.split(/(?<=[.?!]) /), "", strict, depth) ?? sentenceInChinese(text, strict, depth);
  if (found !== null || !text.includes("; ")) return found;
  const clauses = allInChinese(text.replace(/\.$/, "").split("; "), "；", strict, depth);
  return clauses === null ? null : `${clauses}${text.endsWith(".") ? "。" : ""}`;
}

function allInChinese(parts, between, strict, depth) {
  const found = parts.map((part) => sentenceInChinese(part, strict, depth));
  return found.includes(null) ? null : found.join(between);
}

// Whether a text may match: the pattern is tried after that, which takes long if it fails.
function hasInOrder(text, parts) {
  if (!text.startsWith(parts[0]) || !text.endsWith(parts[parts.length - 1])) return false;
  let from = 0;
  for (const part of parts) {
    const place = text.indexOf(part, from);
    if (place < 0) return false;
    from = place + part.length;
  }
  return true;
}

function sentenceInChinese(text, strict, depth) {
  if (HAN.test(text) || !/[a-z]{2}/i.test(text)) return text;
  if (chinese.plain.has(text)) return chinese.plain.get(text);
  for (const { parts, pattern, text: wanted } of chinese.templates) {
    const found = hasInOrder(text, parts) && pattern.exec(text);
    if (!found) continue;
    const values = found.slice(1).map((value) => (depth < DEEPEST ? inChinese(value, strict, depth + 1) ?? value : value));
    if (!strict || !values.some((value) => PROSE.test(value.replace(/`[^`]*`/g, "")))) return spaced(withValues(wanted, values));
  }
  return null;
}

// A text with its surroundings: white space, and the mark of a step's outcome.
function translated(text) {
  if (!chinese.known.has(text)) {
    if (chinese.known.size > MOST_KNOWN) chinese.known.clear();
    const [, before, inner, after] = /^([\s✓✕·]*)([^]*?)(\s*)$/.exec(text);
    const said = inner.replace(/\s+/g, " ");
    const found = inner && (inChinese(said, true) ?? inChinese(said, false));
    chinese.known.set(text, found ? `${before}${found}${after}` : text);
  }
  return chinese.known.get(text);
}

function translateNode(node) {
  if (node.nodeType === Node.TEXT_NODE) {
    const { parentElement } = node;
    if (!parentElement || parentElement.closest("script, style, textarea, pre, #sequence")) return;
    const text = translated(node.nodeValue);
    if (text === node.nodeValue) return;
    if (parentElement.childNodes.length === 1) originals.set(parentElement, node.nodeValue);
    node.nodeValue = text;
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  for (const name of LABELS) translateLabel(node, name);
  for (const child of node.childNodes) translateNode(child);
}

function translateLabel(node, name) {
  const said = node.getAttribute(name);
  if (said === null) return;
  const text = translated(said);
  if (text !== said) node.setAttribute(name, text);
}

async function speakChinese() {
  learnChinese(recording ? recording.sentences : await (await fetch("sentences.json")).json());
  translateNode(document.body);
  new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "attributes") translateLabel(change.target, change.attributeName);
      else if (change.type === "characterData") translateNode(change.target);
      else change.addedNodes.forEach(translateNode);
    }
  }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: LABELS });
}

// A text of the page's own that becomes a part of a longer one.
const spoken = (text) => (language === "zh" ? translated(text) : text);

if (language === "zh") speakChinese();
