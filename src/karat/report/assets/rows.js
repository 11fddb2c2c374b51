// The examples, column by column, read from the files beside the page: file:// allows scripts, but no requests.
const rows = { id: [], index: [], issue: [], given: [], suggested: [] };
for (const name of ["quality", "confidence", "weight", "trust", "loss"]) rows[name] = [];
const values = new Map(); // number of a values file -> its rows
const waiting = new Map();

window.karatRows = (part) => {
  for (const name of Object.keys(rows)) for (const value of part[name]) rows[name].push(value);
};
window.karatValues = (number, part) => values.set(number, part);

function loadScript(file) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${data.folder}/${file}`;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${data.folder}/${file} is missing: keep the folder beside this page.`));
    document.head.append(script);
  });
}

async function loadRows() {
  for (const file of data.files) await loadScript(file); // one after the other: their order is the ranking
}

function loadValues(position) {
  const number = Math.floor(position / data.values.rows);
  if (!waiting.has(number)) waiting.set(number, loadScript(`values-${String(number).padStart(4, "0")}.js`));
  return waiting.get(number).then(() => (values.get(number) || [])[position % data.values.rows] || []);
}

// Returns the positions whose cells or id have the words in them.
async function search(words) {
  const wanted = words.toLowerCase(), found = new Set();
  for (let position = 0; position < rows.id.length; position++) {
    const cells = await loadValues(position);
    if ([rows.id[position], ...cells].some((cell) => cell.toLowerCase().includes(wanted))) found.add(position);
  }
  return found;
}

const label = (number) => (number < 0 ? "" : data.classes[number]);
const statusOf = (position) => decisions.get(rows.index[position])?.decision || "open";

// Shows a thumbnail: its part of a sheet, whatever the size of the node. Sheets have 10 x 10 tiles with a rim of 1 pixel.
function showSprite(node, position) {
  const { files, width, height } = data.sheets;
  const place = position % 100, across = place % 10, down = Math.floor(place / 10);
  const fullWidth = 10 * (width + 2), fullHeight = 10 * (height + 2);
  const x = (100 * (across * (width + 2) + 1)) / (fullWidth - width);
  const y = (100 * (down * (height + 2) + 1)) / (fullHeight - height);
  node.style.backgroundImage = `url("${data.folder}/${files[Math.floor(position / 100)]}")`;
  node.style.backgroundSize = `${(100 * fullWidth) / width}% ${(100 * fullHeight) / height}%`;
  node.style.backgroundPosition = `${x}% ${y}%`;
  node.style.aspectRatio = `${width} / ${height}`;
  node.classList.toggle("pixels", Math.max(width, height) <= 64);
}

// The next screens' pictures, so that a quick reader does not wait.
const ahead = new Set();
function preload(position) {
  if (!data.sheets) return;
  const file = data.sheets.files[Math.floor(position / 100)];
  if (!file || ahead.has(file)) return;
  ahead.add(file);
  new Image().src = `${data.folder}/${file}`;
}
