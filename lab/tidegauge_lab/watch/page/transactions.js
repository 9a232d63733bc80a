// Transactional ids on the page: a card for each, with its state and the partitions of its open transaction. They are
// what coordinators have written to their event logs.
"use strict";

const transactionCards = new Map(); // transactional id -> card
const AT_REST = ["Empty", "CompleteCommit", "CompleteAbort"];

function makeTransactionCard(name) {
  const card = {
    node: make("li", { class: "card transaction-card" }),
    state: make("span", { class: "group-state" }),
    facts: make("div", { class: "facts" }),
    partitions: make("div", { class: "transaction-partitions" }),
    drawn: "",
  };
  card.node.append(make("h3", {}, name, card.state), card.facts, card.partitions);
  return card;
}

// What readers of committed records see of a partition: they stand still at a last stable offset below the HW.
function heldText(name) {
  const partition = view.partitions[name];
  const replica = partition && partition.replicas[partition.leader];
  if (!replica || replica.hw === null || replica.lso === null || replica.lso >= replica.hw) return "";
  return `LSO ${replica.lso} of HW ${replica.hw}`;
}

function drawTransaction(transaction) {
  const card = cardOf(transactionCards, "transaction-cards", transaction.id, makeTransactionCard);
  const rests = AT_REST.includes(transaction.state);
  write(card.state, transaction.state);
  mark(card.state, "class", `group-state ${rests ? "" : "open"}`);
  card.node.classList.toggle("old", transaction.old);
  const begun = rests || transaction.since === null ? "" : `; begun at ${precise(transaction.since)}`;
  const seen = transaction.old ? "; its coordinator does not respond: as last seen" : "";
  write(card.facts, `producer id ${transaction.producerId}, epoch ${transaction.producerEpoch}; coordinator: broker ${transaction.coordinator}${begun}${seen}`);
  const named = rests ? [] : transaction.partitions.map((one) => [one.partition, heldText(one.partition)]);
  const drawn = JSON.stringify(named);
  if (drawn === card.drawn) return;
  card.drawn = drawn;
  card.partitions.replaceChildren(...named.map(([name, held]) => {
    const chip = make("span", { class: held ? "chip behind" : "chip" }, held ? `${name} ` : name);
    if (held) chip.append(make("b", {}, held));
    return chip;
  }));
}

// A partition of an open transaction moves without a word of the transaction's: those are drawn each time.
function drawTransactions(changed) {
  const open = Object.values(view.transactions).filter((one) => !AT_REST.includes(one.state)).map((one) => one.id);
  drawCards(transactionCards, new Set([...changed, ...open]), view.transactions, drawTransaction);
  show(byId("transactions"), transactionCards.size > 0);
}
