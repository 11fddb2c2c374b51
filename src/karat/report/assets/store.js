// Decisions by the example's index: kept in the browser in blocks of 1,000, so that one more costs the same at 50,000.
const BLOCK = 1000;
const PREFIX = `karat-review:${data.run}:`;
const CODES = { keep: "k", accept: "a", other: "o", unsure: "u" };
const NAMES = { k: "keep", a: "accept", o: "other", u: "unsure" };

const decisions = new Map(); // index -> {decision, label}
const history = []; // each entry: [[index, what it was before], ...]
let unsaved = 0;

function readBlock(number) {
  let stored;
  try {
    stored = JSON.parse(storage.get(PREFIX + number) || "{}");
  } catch {
    stored = {}; // not ours
  }
  for (const [index, [code, label]] of Object.entries(stored)) {
    if (NAMES[code]) decisions.set(Number(index), { decision: NAMES[code], label: String(label) });
  }
}

function readStore(indices) {
  for (const number of new Set(indices.map((index) => Math.floor(index / BLOCK)))) readBlock(number);
}

function writeBlock(number) {
  const block = {};
  for (let index = number * BLOCK; index < (number + 1) * BLOCK; index++) {
    const one = decisions.get(index);
    if (one) block[index] = [CODES[one.decision], one.label];
  }
  storage.set(PREFIX + number, Object.keys(block).length ? JSON.stringify(block) : null);
}

function put(index, value) {
  if (value) decisions.set(index, value);
  else decisions.delete(index);
}

// Changes are [index, {decision, label} or undefined]; they are undone together.
function decide(changes, remember = true) {
  if (remember) history.push(changes.map(([index]) => [index, decisions.get(index)]));
  for (const [index, value] of changes) put(index, value);
  for (const number of new Set(changes.map(([index]) => Math.floor(index / BLOCK)))) writeBlock(number);
  unsaved += 1;
}

// Returns the index of the example that the undone decision was about.
function undo() {
  const changes = history.pop();
  if (!changes) return undefined;
  decide(changes, false);
  return changes[0][0];
}

// Another window with the same report.
function followOtherWindows(render) {
  window.addEventListener("storage", (event) => {
    if (!event.key || !event.key.startsWith(PREFIX)) return;
    const number = Number(event.key.slice(PREFIX.length));
    for (let index = number * BLOCK; index < (number + 1) * BLOCK; index++) decisions.delete(index);
    readBlock(number);
    render();
  });
}
