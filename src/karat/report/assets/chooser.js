// The chooser of another label: type a part of its name, arrows and Enter, or click.
const CHOICES = 100;

function createChooser(onChoose) {
  const dialog = byId("chooser"), input = byId("chooser-text"), list = byId("chooser-list"), note = byId("chooser-note");
  const folded = data.classes.map((name) => name.toLowerCase());
  let found = [], marked = 0;

  function matches(text) {
    const wanted = text.trim().toLowerCase();
    const all = data.classes.map((_, number) => number).filter((number) => folded[number].includes(wanted));
    const rank = (number) => (folded[number] === wanted ? 0 : folded[number].startsWith(wanted) ? 1 : 2);
    return wanted ? all.sort((a, b) => rank(a) - rank(b) || a - b) : all;
  }

  function mark(place) {
    marked = Math.max(0, Math.min(place, list.children.length - 1));
    [...list.children].forEach((item, number) => item.setAttribute("aria-selected", String(number === marked)));
    const item = list.children[marked];
    input.setAttribute("aria-activedescendant", item ? item.id : "");
    if (item) item.scrollIntoView({ block: "nearest" });
  }

  function update() {
    found = matches(input.value);
    list.replaceChildren(
      ...found.slice(0, CHOICES).map((number) => {
        const item = make("li", "", readable(data.classes[number]));
        item.id = "choice-" + number;
        item.dir = "auto";
        item.setAttribute("role", "option");
        item.addEventListener("click", () => choose(number));
        return item;
      }),
    );
    note.textContent = found.length
      ? found.length > CHOICES ? `The first ${CHOICES} of ${found.length} labels: type to narrow them down.` : ""
      : "No label has this in its name.";
    mark(0);
  }

  function choose(number) {
    dialog.close();
    onChoose(number);
  }

  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps) mark(marked + steps[event.key]);
    else if (event.key === "Enter" && found.length) choose(found[marked]);
    else return;
    event.preventDefault();
  });
  byId("chooser-close").addEventListener("click", () => dialog.close());

  return () => {
    input.value = "";
    dialog.showModal();
    update();
    input.focus();
  };
}
