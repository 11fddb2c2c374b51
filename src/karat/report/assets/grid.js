// The list of examples: only the tiles that can be seen exist, however many examples there are.
const STATUS = { open: "", keep: "Kept", accept: "Accepted", other: "Other label", unsure: "Not sure" };

function createGrid(onPick) {
  const box = byId("grid"), space = byId("grid-space");
  const withPicture = Boolean(data.sheets);
  const narrowest = withPicture ? 108 : 150, height = withPicture ? 140 : 56, gap = 10;
  const tiles = []; // reused
  let shown = [], current = -1, columns = 1, width = narrowest, pending = false;

  function newTile() {
    const tile = make("div", withPicture ? "tile" : "tile words");
    tile.setAttribute("role", "option");
    if (withPicture) tile.append(make("div", "sprite"));
    tile.append(make("div", "text"), make("div", "status"));
    tile.addEventListener("click", () => onPick(Number(tile.dataset.place)));
    space.append(tile);
    tiles.push(tile);
    return tile;
  }

  function fill(tile, place) {
    const position = shown[place], status = statusOf(position);
    const target = rows.suggested[position] >= 0 ? label(rows.suggested[position]) : "?";
    const given = `\u2068${readable(label(rows.given[position]))}\u2069`;
    const text = data.blind ? given : `${given} → \u2068${readable(target)}\u2069`;
    tile.hidden = false;
    tile.id = "tile-" + position;
    tile.dataset.place = place;
    tile.dataset.status = status;
    tile.setAttribute("aria-selected", String(position === current));
    tile.title = readable(rows.id[position]);
    tile.style.left = gap + (place % columns) * width + "px";
    tile.style.top = gap + Math.floor(place / columns) * height + "px";
    if (withPicture) showSprite(tile.firstChild, position);
    else tile.style.width = width - 4 + "px";
    const words = tile.querySelector(".text");
    if (words.textContent !== text) words.textContent = text;
    tile.lastChild.textContent = STATUS[status] || (withPicture ? "" : readable(rows.id[position]));
    if (data.values?.texts && !STATUS[status]) {
      loadValues(position).then((row) => {
        if (tile.id === "tile-" + position) tile.lastChild.textContent = readable((row[0] || "").slice(0, 80));
      }, () => {}); // the example itself says what is missing
    }
  }

  function render() {
    pending = false;
    if (!box.clientHeight) return;
    columns = Math.max(1, Math.floor((box.clientWidth - 2 * gap) / narrowest));
    width = Math.floor((box.clientWidth - 2 * gap) / columns);
    space.style.height = 2 * gap + Math.ceil(shown.length / columns) * height + "px";
    const first = Math.max(0, Math.floor(box.scrollTop / height) - 1) * columns;
    const last = Math.min(shown.length, (Math.ceil((box.scrollTop + box.clientHeight) / height) + 1) * columns);
    let used = 0;
    for (let place = first; place < last; place++) fill(tiles[used++] || newTile(), place);
    for (; used < tiles.length; used++) {
      tiles[used].hidden = true;
      tiles[used].removeAttribute("id");
    }
    box.setAttribute("aria-activedescendant", current >= 0 ? "tile-" + current : "");
  }

  function soon() {
    if (!pending) requestAnimationFrame(render);
    pending = true;
  }
  box.addEventListener("scroll", soon, { passive: true });
  new ResizeObserver(soon).observe(box);

  return {
    // `place` is that of the current example in the list `positions`; it is scrolled into view.
    show(positions, place) {
      shown = positions;
      current = place >= 0 ? positions[place] : -1;
      const top = Math.floor(Math.max(place, 0) / columns) * height;
      if (top < box.scrollTop) box.scrollTop = top;
      else if (top + height + 2 * gap > box.scrollTop + box.clientHeight) {
        space.style.height = 2 * gap + Math.ceil(shown.length / columns) * height + "px";
        box.scrollTop = top + height + 2 * gap - box.clientHeight;
      }
      render();
    },
    columns: () => columns,
  };
}
