// The page: which view is shown, light or dark, copy buttons. Everything from data is set as text, never as HTML.
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("review-data").textContent);

function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== "") node.textContent = text;
  return node;
}

// Control characters and those that are invisible or turn the direction of text would deceive; joiners make words.
function readable(text) {
  return text.replace(/[\n\r]+/g, "⏎").replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}]/gu, "�") || "(empty)";
}

function quoted(text) {
  return "“\u2068" + readable(text) + "\u2069”"; // isolated: a name may run from right to left
}

// Storage may be refused (private windows, settings, files): then everything works, but is not kept.
const storage = {
  works: true,
  get(key) {
    try {
      return window.localStorage.getItem(key);
    } catch {
      this.works = false;
      return null;
    }
  },
  set(key, value) {
    try {
      if (value === null) window.localStorage.removeItem(key);
      else window.localStorage.setItem(key, value);
    } catch {
      this.works = false;
    }
    return this.works;
  },
};

const opened = []; // what to do when a view is shown
function showView() {
  const name = location.hash === "#review" ? "review" : "report";
  for (const view of document.querySelectorAll("[data-page]")) view.hidden = view.id !== name;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const action of opened) action(name);
}
window.addEventListener("hashchange", () => {
  showView();
  if (location.hash === "#review" || location.hash === "#report") window.scrollTo(0, 0);
});

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}
const kept = storage.get("karat-theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  storage.set("karat-theme", document.documentElement.dataset.theme);
});

async function copyText(text, node) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(node.parentElement.querySelector("code"));
    document.execCommand("copy");
  }
  node.textContent = "Copied";
  setTimeout(() => (node.textContent = "Copy"), 1500);
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copyText(button.dataset.copy, button));
}
