"""The review page in a browser: decisions by keyboard, reload, export, import, hostile names, 50,000 rows."""

import pytest
from report_runs import HOSTILE, grey, make_run

from karat.files.safe_csv import read_safe_csv, write_safe_csv
from karat.report.page import write_report, write_sample_page
from karat.report.pictures import FeatureRows
from karat.report.review import review_table


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    table = make_run(folder)
    write_report(folder, grey)
    return folder, review_table(table, 5000)


def exported(page, folder):
    with page.expect_download() as download:
        page.click("#export")
    path = folder / "exported.csv"
    download.value.save_as(path)
    assert download.value.suggested_filename == "decisions.csv"
    return path


def progress(page):
    return page.text_content("#progress-text")


def test_a_sample_is_decided_blindly(run, open_page, tmp_path):
    """Nothing tells what is suggested, the rows are in the order of the draw, and the report's decisions stay out."""
    folder, table = run
    drawn = table.sample(12, random_state=0)[["id", "index", "given_label"]].assign(decision="", label="")
    write_safe_csv(drawn, folder / "sample.csv")
    page = open_page(write_sample_page(folder, grey), "#review")
    assert progress(page) == "0 of 12 decided"
    for hidden in ("#suggested", "[data-decision=accept]", "#filter-pair"):
        assert not page.is_visible(hidden)
    assert page.locator("#measures dt").count() == 0
    assert "→" not in page.text_content("#grid-space")
    page.keyboard.press("a")  # nothing to accept
    assert progress(page) == "0 of 12 decided"
    for _ in range(12):
        page.keyboard.press("1")
    found = read_safe_csv(exported(page, tmp_path))
    assert found["id"].tolist() == drawn["id"].tolist()
    assert set(found["label"]) == {"ant"}
    assert set(found["decision"]) <= {"keep", "other"}


def test_twenty_decisions_by_keyboard_survive_a_reload_and_are_exported(run, open_page, tmp_path):
    """The keys K, A, U and 1 repeat: keep, accept, unsure, and the first class, which may be given or suggested."""
    folder, table = run
    page = open_page(folder / "report.html", "#review")
    for key in "kau1" * 5:
        page.keyboard.press(key)
    assert progress(page) == f"20 of {len(table)} decided"
    page.reload()
    page.wait_for_selector("html[data-review=ready]", state="attached")
    assert progress(page) == f"20 of {len(table)} decided"
    assert page.text_content("#place") == f"21 of {len(table)}"

    found = read_safe_csv(exported(page, tmp_path))
    assert list(found.columns) == ["id", "index", "given_label", "decision", "label"]
    first = table.head(20)
    assert found["id"].tolist() == first["id"].tolist()
    assert found["index"].tolist() == first["index"].tolist()
    for number, (row, decision) in enumerate(zip(first.itertuples(), found.itertuples(), strict=True)):
        numbered = {row.given_label: "keep", row.suggested_label: "accept"}.get("ant", "other")
        expected = [
            ("keep", row.given_label),
            ("accept", row.suggested_label),
            ("unsure", ""),
            (numbered, "ant"),
        ][number % 4]
        assert (decision.decision, decision.label) == expected


def test_undo_filters_and_moving_back(run, open_page):
    folder, table = run
    page = open_page(folder / "report.html", "#review")
    page.keyboard.press("k")
    page.keyboard.press("a")
    page.keyboard.press("Backspace")
    assert page.text_content("#place") == f"2 of {len(table)}"
    assert "Accepted" in page.text_content("#decision")
    page.keyboard.press("z")
    assert page.text_content("#decision") == ""
    assert progress(page) == f"1 of {len(table)} decided"

    page.select_option("#filter-status", "open")
    assert page.text_content("#place") == f"1 of {len(table) - 1}"
    page.focus("#grid")
    page.keyboard.press("k")
    assert page.text_content("#place") == f"1 of {len(table) - 2}"
    page.select_option("#filter-status", "")
    pair = (table["given_label"] == "bee") & (table["suggested_label"] == "cat")
    page.select_option("#filter-pair", label=next(o for o in options(page) if "bee" in o.split("→")[0] and "cat" in o))
    assert page.text_content("#place") == f"1 of {pair.sum()}"
    assert (page.text_content("#given"), page.text_content("#suggested")) == ("bee", "cat")


def options(page):
    return page.locator("#filter-pair option").all_text_contents()


def test_decisions_are_imported_again_and_others_left_out(run, open_page, tmp_path):
    folder, _ = run
    page = open_page(folder / "report.html", "#review")
    page.keyboard.press("a")
    page.keyboard.press("u")
    path = exported(page, tmp_path)
    path.write_text(path.read_text(encoding="utf-8-sig") + '"stranger",9999,"ant","keep","ant"\n', encoding="utf-8")

    fresh = open_page(folder / "report.html", "#review")
    assert progress(fresh).startswith("0 of")
    said = []
    fresh.on("dialog", lambda dialog: (said.append(dialog.message), dialog.accept()))
    fresh.set_input_files("#import-file", path)
    fresh.wait_for_selector("#progress[value='2']")
    assert said[0].startswith("2 decisions imported, 1 left out")


def test_hostile_names_do_no_harm_and_come_back_as_they_were(tmp_path, open_page):
    folder = tmp_path / "run"
    names = [f"{HOSTILE[row % len(HOSTILE)]}{row}" for row in range(60)]
    table = review_table(make_run(folder, 60, HOSTILE, names), 5000)
    write_report(folder, grey, skipped=[(HOSTILE[0], HOSTILE[1])], notes=[HOSTILE[5]])
    page = open_page(folder / "report.html")
    assert HOSTILE[5] in page.text_content(".warnings")
    page.click("nav a[data-view=review]")
    page.wait_for_selector("#given:visible")
    for _ in range(len(table) - 1):
        page.keyboard.press("a")
    page.keyboard.press("o")
    page.keyboard.type("=1")
    page.keyboard.press("Enter")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0
    assert not set("\u202e\u200b") & set(page.inner_text("body"))
    found = read_safe_csv(exported(page, tmp_path))
    assert found["id"].tolist() == table["id"].tolist()
    assert found["given_label"].tolist() == table["given_label"].tolist()
    accepted = table["suggested_label"].tolist()[:-1]
    assert found["label"].tolist() == [*(label for label in accepted if label), "=1+1"]
    assert {path.suffix for path in (folder / "report_files").iterdir()} == {".js", ".png"}


def test_the_page_works_where_the_browser_keeps_nothing(run, open_page):
    blocked = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked'); }})"
    page = open_page(run[0] / "report.html", "#review", script=blocked)
    page.keyboard.press("k")
    assert progress(page).startswith("1 of")
    assert page.is_visible("#storage-note")


def test_a_phone_needs_no_sideways_scrolling(run, open_page):
    page = open_page(run[0] / "report.html", viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click("nav a[data-view=review]")
    page.wait_for_selector("#given:visible")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_light_and_dark_follow_the_system_and_the_button(run, open_page):
    path = run[0] / "report.html"
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = open_page(path, color_scheme="light"), open_page(path, color_scheme="dark")
    bright = light.evaluate(ground)
    assert bright != dark.evaluate(ground)
    dark.click("#theme")
    assert dark.evaluate(ground) == bright
    dark.reload()
    assert dark.evaluate(ground) == bright


def test_table_rows_show_their_values(tmp_path, open_page):
    table = make_run(tmp_path / "run", names=[f"customer {row}" for row in range(200)])
    features = FeatureRows(["age", "<b>town</b>"], lambda rows, columns: [[f"00{row}", "Bonn & Rome"] for row in rows])
    write_report(tmp_path / "run", features=features)
    page = open_page(tmp_path / "run" / "report.html", "#review")
    page.wait_for_selector("#values td")
    shown = page.locator("#values tr").all_text_contents()
    assert shown == [f"age00{table['index'][0]}", "<b>town</b>Bonn & Rome"]
    assert page.is_hidden("#picture")


def test_long_cells_and_cells_that_turn_the_text_stay_in_their_place(tmp_path, open_page):
    make_run(tmp_path / "run")
    texts = ["x" * 10_000, "\u202egnp.exe", ""]
    write_report(tmp_path / "run", features=FeatureRows(["a", "b", "c"], lambda rows, columns: [texts for _ in rows]))
    page = open_page(tmp_path / "run" / "report.html")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    heights = "Array.from(document.querySelectorAll('.row-values dd'), (cell) => cell.offsetHeight)"
    assert 0 < max(page.evaluate(heights)) < 60
    page = open_page(tmp_path / "run" / "report.html", "#review")
    page.wait_for_selector("#values td")
    shown = page.locator("#values td").all_text_contents()
    assert shown == ["x" * 2_000 + " … (10,000 characters)", "\ufffdgnp.exe", "–"]
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_fifty_thousand_rows_touch_no_more_of_the_page_than_fifty(tmp_path, open_page):
    """What takes time in a browser is counted: elements that exist, and nodes that a key adds, removes or changes."""
    touched = {}
    for rows in (50, 50_000):
        folder = tmp_path / f"run-{rows}"
        make_run(folder, rows + 3_000, [f"class {number}" for number in range(30)], redrawn=1.0)
        write_report(folder, lambda rows: grey(rows, 4), review_rows=rows)
        page = open_page(folder / "report.html", "#review")
        assert progress(page) == f"0 of {rows:,} decided"
        touched[rows] = page.evaluate(
            """() => {
              const observer = new MutationObserver(() => {});
              observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
              for (let key = 0; key < 20; key++)
                document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", bubbles: true}));
              return [document.querySelectorAll("*").length, observer.takeRecords().length];
            }"""
        )
        assert progress(page) == f"20 of {rows:,} decided"
    (few_elements, few_changes), (elements, changes) = touched.values()
    assert changes == few_changes
    assert elements < 1.5 * few_elements
    page.evaluate("document.getElementById('grid').scrollTop = 1e9")
    page.wait_for_selector("#tile-49999")
    assert page.locator(".tile").count() < 200
    loaded = page.evaluate("performance.getEntriesByType('resource').filter(e => e.name.includes('sheet-')).length")
    assert loaded < 10, "of 500 sheets"


def test_texts_are_escaped_folded_and_found(tmp_path, open_page):
    """The text of every row is hostile; that of one row is long and has a word that no other has."""
    table = make_run(tmp_path / "run")
    long = "needle in\nthe hay " + "x" * 5_000
    texts = dict.fromkeys(table["index"], "<img src=x onerror=alert(1)> & more") | {table["index"][3]: long}
    write_report(
        tmp_path / "run", features=FeatureRows(["text"], lambda rows, columns: [[texts[row]] for row in rows], True)
    )
    page = open_page(tmp_path / "run" / "report.html")
    assert page.locator(".gallery.texts .long-text").first.text_content() == texts[table["index"][0]]
    assert page.locator("details.long-text").count() == 1
    page = open_page(tmp_path / "run" / "report.html", "#review")
    page.wait_for_selector("#values .long-text")
    page.fill("#search", "NEEDLE")
    page.wait_for_selector("#place:text-is('1 of 1')")
    page.wait_for_selector("#values .long-text:has-text('needle in')")
    page.click("#values button")
    assert page.text_content("#values .long-text") == long
