// One example, large: its picture or values, its labels, what was decided about it.
const MEASURES = [
  ["quality", "Label quality", (value) => value.toFixed(2)],
  ["confidence", "Confidence", (value) => Math.round(100 * value) + "%"],
  ["weight", "Mean weight", (value) => value.toFixed(2)],
  ["trust", "Label trust", (value) => value.toFixed(2)],
  ["loss", "Mean loss", (value) => value.toFixed(2)],
];

const FOLDED = 1500; // characters

// Keys of the first ten labels: their own digits where labels are digits, else 1 to 9 and 0.
function labelKeys() {
  if (data.classes.length > 10) return [];
  const digits = data.classes.every((name) => /^[0-9]$/.test(name));
  return data.classes.map((name, number) => (digits ? name : String((number + 1) % 10)));
}

function sentence(one) {
  if (!one) return "";
  const texts = { keep: "Kept as", accept: "Accepted:", other: "Labelled as", unsure: "Not sure" };
  return one.decision === "unsure" ? texts.unsure : `${texts[one.decision]} ${quoted(one.label)}`;
}

function createExample(onLabel) {
  const keys = labelKeys();
  const box = byId("class-keys");
  box.hidden = byId("help-numbers").hidden = !keys.length;
  const chips = keys.map((key, number) => {
    const chip = make("button");
    chip.type = "button";
    chip.dir = "auto";
    if (key !== data.classes[number]) chip.append(make("kbd", "", key), " ");
    chip.append(make("bdi", "", readable(data.classes[number])));
    chip.addEventListener("click", () => onLabel(number));
    box.append(chip);
    return chip;
  });

  // Lines stay lines here; a long text is folded until somebody asks for the rest.
  function showText(position) {
    const box = make("div", "long-text");
    box.dir = "auto";
    byId("values").replaceChildren(box);
    byId("values").scrollTop = 0;
    loadValues(position).then((row) => {
      const text = (row[0] || "").split(/\r?\n/).map((line) => line && readable(line)).join("\n");
      box.textContent = text.length > FOLDED ? text.slice(0, FOLDED) + "…" : text;
      if (text.length <= FOLDED) return;
      const more = make("button", "quiet", `Show all ${text.length.toLocaleString("en")} characters`);
      more.type = "button";
      more.addEventListener("click", () => {
        box.textContent = text;
        more.remove();
      });
      byId("values").append(more);
    }, (error) => byId("values").replaceChildren(make("p", "note", error.message)));
  }

  function showValues(position) {
    const table = make("table", "plain"), body = make("tbody");
    table.append(body);
    byId("values").replaceChildren(table);
    loadValues(position).then((row) => {
      data.values.names.forEach((name, number) => {
        const line = make("tr"), head = make("th", "", readable(name));
        const value = make("td", "", row[number] ? readable(row[number]) : "–");
        head.scope = "row";
        line.append(head, value);
        body.append(line);
      });
      const more = data.values.all - data.values.names.length;
      if (more > 0) byId("values").append(make("p", "note", `and ${more} more columns`));
    }, (error) => byId("values").replaceChildren(make("p", "note", error.message)));
  }

  return (position, place, count) => {
    const given = label(rows.given[position]), suggested = label(rows.suggested[position]);
    const one = decisions.get(rows.index[position]);
    byId("place").textContent = `${(place + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`;
    byId("example-id").textContent = readable(rows.id[position]);
    byId("given").textContent = readable(given);
    byId("suggested").textContent = rows.suggested[position] < 0 ? "–" : readable(suggested);
    byId("decision").textContent = sentence(one);
    for (const button of document.querySelectorAll("[data-decision]")) {
      button.setAttribute("aria-pressed", String(one?.decision === button.dataset.decision));
    }
    document.querySelector('[data-decision="accept"]').disabled = rows.suggested[position] < 0;
    document.querySelector('[data-decision="keep"]').title = `Keep ${quoted(given)}`;
    document.querySelector('[data-decision="accept"]').title = suggested ? `Accept ${quoted(suggested)}` : "No suggestion";
    chips.forEach((chip, number) => {
      const pressed = Boolean(one) && one.decision !== "unsure" && one.label === data.classes[number];
      chip.setAttribute("aria-pressed", String(pressed));
    });
    const known = MEASURES.filter(([name]) => rows[name][position] !== null);
    byId("measures").replaceChildren(
      ...known.map(([name, title, text]) => {
        const pair = make("div");
        pair.append(make("dt", "", title), make("dd", "", text(rows[name][position])));
        return pair;
      }),
    );
    const picture = byId("picture");
    picture.hidden = !data.sheets;
    byId("values").hidden = !data.values;
    if (data.sheets) {
      showSprite(picture, position);
      picture.setAttribute("aria-label", `Picture of ${readable(rows.id[position])}, given label ${readable(given)}`);
    }
    if (data.values) (data.values.texts ? showText : showValues)(position);
  };
}
