// decisions.csv: text is quoted, and what a spreadsheet would run as a formula gets one apostrophe in front.
const RUNS = /^'*[=+\-@\t\r]/;
const ESCAPED = /^'+[=+\-@\t\r]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const HEADER = ["id", "index", "given_label", "decision", "label"];

function cell(value) {
  if (typeof value === "number") return String(value);
  const safe = RUNS.test(value) && !NUMBER.test(value) ? "'" + value : value;
  return '"' + safe.replaceAll('"', '""') + '"';
}

function writeCsv(rows) {
  return [HEADER, ...rows].map((row) => row.map(cell).join(",") + "\n").join("");
}

// Returns rows of cells; quotes may hold commas, quotes and line ends.
function parseCsv(text) {
  const rows = [];
  let row = [], place = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  const end = text.length;
  while (place < end) {
    let value;
    if (text[place] === '"') {
      value = "";
      place++;
      for (;;) {
        const quote = text.indexOf('"', place);
        if (quote < 0) throw new Error("a quote is not closed");
        value += text.slice(place, quote);
        place = quote + 1;
        if (text[place] !== '"') break;
        value += '"';
        place++;
      }
    } else {
      const start = place;
      while (place < end && !",\n\r".includes(text[place])) place++;
      value = text.slice(start, place);
    }
    row.push(ESCAPED.test(value) ? value.slice(1) : value);
    if (text[place] === ",") {
      place++;
      if (place === end) row.push("");
      continue;
    }
    if (text[place] === "\r") place++;
    if (text[place] === "\n") place++;
    rows.push(row);
    row = [];
  }
  if (row.length) rows.push(row);
  return rows;
}

// Returns the rows as objects, or throws a sentence.
function readCsv(text) {
  let rows;
  try {
    rows = parseCsv(text);
  } catch (error) {
    throw new Error(`This is not a CSV file (${error.message}): choose a decisions.csv that was exported here.`);
  }
  const names = rows.shift() || [];
  const places = HEADER.map((name) => names.indexOf(name));
  if (places.includes(-1)) throw new Error(`This file has no columns ${HEADER.join(", ")}: choose a decisions.csv.`);
  return rows.map((row) => Object.fromEntries(HEADER.map((name, number) => [name, row[places[number]] ?? ""])));
}
