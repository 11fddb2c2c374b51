// The review: filters, keys, progress, undo, export and import.
let list = []; // positions that the filters let through, in order of suspicion
let matches = null; // positions that were searched for
let place = 0; // of the current example in the list
let keysOn = storage.get("karat-keys") !== "off";
const number = (value) => value.toLocaleString("en");
const pairOf = (position) => `${rows.given[position]} ${rows.suggested[position]}`;

function announce(text) {
  byId("announce").textContent = text;
}

function refilter() {
  const pair = byId("filter-pair").value, status = byId("filter-status").value;
  list = [];
  for (let position = 0; position < rows.id.length; position++) {
    if (matches && !matches.has(position)) continue;
    if ((!pair || pairOf(position) === pair) && (!status || statusOf(position) === status)) list.push(position);
  }
}

function render() {
  place = Math.max(0, Math.min(place, list.length - 1));
  byId("example").hidden = !list.length;
  byId("example-empty").hidden = Boolean(list.length);
  if (list.length) {
    showExample(list[place], place, list.length);
    preload(list[Math.min(place + 40, list.length - 1)]);
  }
  grid.show(list, list.length ? place : -1);
  const decided = rows.index.reduce((sum, index) => sum + decisions.has(index), 0);
  byId("progress").max = rows.id.length;
  byId("progress").value = decided;
  byId("progress-text").textContent = `${number(decided)} of ${number(rows.id.length)} decided`;
  byId("undo").disabled = !history.length;
  byId("export").disabled = !decided;
  byId("storage-note").hidden = storage.works;
}

function move(steps) {
  place = Math.max(0, Math.min(place + steps, list.length - 1));
  render();
}

function enter(decision, text) {
  if (!list.length) return;
  const position = list[place];
  decide([[rows.index[position], { decision, label: text }]]);
  announce(sentence({ decision, label: text }));
  const before = list.length;
  if (byId("filter-status").value) refilter();
  if (list.length === before) place += 1; // else the next one took its place
  render();
}

function enterLabel(chosen) {
  const position = list[place];
  const kind = chosen === rows.given[position] ? "keep" : chosen === rows.suggested[position] ? "accept" : "other";
  enter(kind, data.classes[chosen]);
}

function act(decision) {
  if (!list.length) return;
  const position = list[place];
  if (decision === "keep") enter("keep", label(rows.given[position]));
  else if (decision === "accept" && rows.suggested[position] >= 0) enter("accept", label(rows.suggested[position]));
  else if (decision === "other") openChooser();
  else if (decision === "unsure") enter("unsure", "");
}

function undoLast() {
  const index = undo();
  if (index === undefined) return;
  refilter();
  const again = list.findIndex((position) => rows.index[position] === index);
  if (again >= 0) place = again;
  announce("Undone");
  render();
}

function exportDecisions() {
  const lines = [];
  rows.index.forEach((index, position) => {
    const one = decisions.get(index);
    if (one) lines.push([rows.id[position], index, label(rows.given[position]), one.decision, one.label]);
  });
  const link = make("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff" + writeCsv(lines)], { type: "text/csv;charset=utf-8" }));
  link.download = "decisions.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  unsaved = 0;
  announce(`${lines.length} decisions exported`);
}

async function importDecisions(file) {
  const places = new Map(rows.index.map((index, position) => [index, position]));
  const changes = [];
  let found;
  try {
    found = readCsv(await file.text());
  } catch (error) {
    window.alert(error.message);
    return;
  }
  for (const row of found) {
    const index = Number(row.index), position = row.index === "" ? undefined : places.get(index);
    const fits = position !== undefined && rows.id[position] === row.id && label(rows.given[position]) === row.given_label;
    const legal = row.decision in CODES && (row.decision === "unsure" || data.classes.includes(row.label));
    if (fits && legal) changes.push([index, { decision: row.decision, label: row.decision === "unsure" ? "" : row.label }]);
  }
  if (changes.length) decide(changes);
  refilter();
  render();
  const left = found.length - changes.length;
  window.alert(`${number(changes.length)} decisions imported${left ? `, ${number(left)} left out: they are not about rows of this report` : ""}.`);
}

function fillPairs() {
  const counts = new Map();
  for (let position = 0; position < rows.id.length; position++) {
    const pair = pairOf(position);
    counts.set(pair, (counts.get(pair) || 0) + 1);
  }
  const top = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 300);
  for (const [pair, count] of top) {
    const [given, suggested] = pair.split(" ").map(Number);
    const target = suggested < 0 ? "no suggestion" : readable(label(suggested));
    const option = make("option", "", `\u2068${readable(label(given))}\u2069 → \u2068${target}\u2069 (${number(count)})`);
    option.value = pair;
    byId("filter-pair").append(option);
  }
}

const KEYS = {
  k: () => act("keep"), a: () => act("accept"), o: () => act("other"), u: () => act("unsure"), z: undoLast,
  ArrowRight: () => move(1), ArrowLeft: () => move(-1), Backspace: () => move(-1),
  ArrowDown: () => move(grid.columns()), ArrowUp: () => move(-grid.columns()),
  "?": () => byId("help-dialog").showModal(),
};

function onKey(event) {
  if (byId("review").hidden || document.querySelector("dialog[open]") || event.altKey || event.metaKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey && key !== "z") return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || (!keysOn && event.target !== byId("grid"))) return;
  const chosen = labelKeys().indexOf(key);
  if (chosen >= 0 && !event.ctrlKey && list.length) enterLabel(chosen);
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
}

let grid, showExample, openChooser;
async function startReview() {
  byId("review-empty").hidden = data.count > 0;
  if (!data.count) return;
  try {
    await loadRows();
  } catch (error) {
    byId("review-empty").textContent = error.message;
    byId("review-empty").hidden = false;
    return;
  }
  byId("review-work").hidden = false;
  readStore(rows.index);
  grid = createGrid((picked) => move(picked - place));
  showExample = createExample(enterLabel);
  openChooser = createChooser(enterLabel);
  for (const node of document.querySelectorAll("[data-suggests]")) node.hidden = data.blind;
  fillPairs();
  refilter();
  place = Math.max(0, list.findIndex((position) => statusOf(position) === "open"));

  for (const id of ["filter-pair", "filter-status"]) {
    byId(id).addEventListener("change", () => {
      refilter();
      place = 0;
      render();
    });
  }
  byId("search-box").hidden = !data.values;
  let latest = 0, pause;
  byId("search").addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(async () => {
      const own = ++latest, words = byId("search").value.trim();
      const found = words ? await search(words).catch(() => null) : null;
      if (own !== latest) return; // somebody typed on
      matches = found;
      refilter();
      place = 0;
      announce(matches ? `${number(list.length)} examples found` : "All examples");
      render();
    }, 150);
  });
  for (const button of document.querySelectorAll("[data-decision]")) {
    button.addEventListener("click", () => act(button.dataset.decision));
  }
  byId("previous").addEventListener("click", () => move(-1));
  byId("following").addEventListener("click", () => move(1));
  byId("undo").addEventListener("click", undoLast);
  byId("export").addEventListener("click", exportDecisions);
  byId("import").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", (event) => {
    if (event.target.files[0]) importDecisions(event.target.files[0]);
    event.target.value = "";
  });
  byId("help").addEventListener("click", KEYS["?"]);
  byId("help-close").addEventListener("click", () => byId("help-dialog").close());
  byId("keys-on").checked = keysOn;
  byId("keys-on").addEventListener("change", (event) => {
    keysOn = event.target.checked;
    storage.set("karat-keys", keysOn ? "on" : "off");
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("beforeunload", (event) => {
    if (!storage.works && unsaved) event.preventDefault();
  });
  followOtherWindows(() => {
    refilter();
    render();
  });
  opened.push((name) => name === "review" && render());
  render();
  document.documentElement.dataset.review = "ready";
}

showView();
startReview();
