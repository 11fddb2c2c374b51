"""The page as text: what is on it, what is missing without harm, and that nothing in it can run but its own script."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from report_runs import HOSTILE, grey, make_run

from karat.audit.reliability import reliability, save_reliability
from karat.errors import UserError
from karat.report.page import content_policy, write_report
from karat.report.pictures import sheet, write_sheets
from karat.report.review import review_table, script_safe
from karat.report.run_files import read_run


class Parsed(HTMLParser):
    """All start tags with their attributes, the texts of scripts and styles, and all other text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.styles, self.words, self._inside = [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        {"script": self.scripts, "style": self.styles}.get(self._inside, self.words).append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page_of(folder, **options):
    return Parsed(write_report(folder, **options).read_text(encoding="utf-8"))


def test_the_page_has_every_section(tmp_path):
    make_run(tmp_path / "run")
    make_run(tmp_path / "other", seed=1)
    page = page_of(tmp_path / "run", thumbnail=grey, compare=[tmp_path / "other"], skipped=[("a.png", "not an image")])
    issues = read_run(tmp_path / "run").issues["is_label_issue"].sum()
    for words in (
        *(f"About 30% of 200 labels are wrong; {issues} look suspicious.", "91.4%", "on 500 test examples"),
        *("95% interval 25.0% to 36.0%", f"karat apply {tmp_path / 'run'} decisions.csv", "12 min 34 s", "900 MiB"),
        *("Which class is mistaken for which", "Commonest mistakes", "Quality of each class", "Weight against loss"),
        *("How much each example counts", "Label trust and weights over the epochs", "Test accuracy", "Training loss"),
        *("Compared with other runs", "Most suspicious examples", "images/", "not an image", "insects.csv"),
    ):
        assert words in page.text, words
    drawings = [attributes for tag, attributes in page.tags if tag == "svg" and "chart" in attributes.get("class", "")]
    assert len(drawings) == 6
    assert all(drawing["aria-label"] for drawing in drawings)
    pictures = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 24
    assert all(source.startswith("data:image/png;base64,") for source in pictures)


def test_an_old_run_without_the_newer_files_and_columns_has_a_report(tmp_path):
    table = make_run(tmp_path)
    columns = ["index", "given_label", "predicted_label", "is_label_issue", "label_quality", "times_seen"]
    table[columns].to_csv(tmp_path / "label_issues.csv", index=False)
    for name in ("noise_estimate.json", "environment.json", "metrics.jsonl"):
        (tmp_path / name).unlink()
    (tmp_path / "results.json").write_text(json.dumps({"selected": None, "noise_rate": 0.3, "seconds": 5}))
    page = page_of(tmp_path)
    assert f"{table['is_label_issue'].sum()} of 200 labels look wrong." in page.text
    for words in ("Test accuracy", "Weight against loss", "mistaken for which", "Warnings", "Training loss"):
        assert words not in page.text
    assert "Commonest mistakes" in page.text


def test_a_run_without_test_examples_shows_how_it_agrees_with_the_labels(tmp_path):
    make_run(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps({"selected": None, "seconds": 5}))
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1.0, "trusted_accuracy": 0.9, "given_label_accuracy": 0.6}\n')
    page = page_of(tmp_path)
    assert "Agreement with labels" in page.text
    assert "trusted labels (seen in training)" in page.text
    assert "Test accuracy" not in page.text


def test_a_run_without_issues_is_told_to_use_its_model(tmp_path):
    table = make_run(tmp_path)
    table.assign(is_label_issue=False, label_quality=0.9, suggested_label="").to_csv(
        tmp_path / "label_issues.csv", index=False
    )
    page = page_of(tmp_path, thumbnail=grey)
    assert "None of the 200 labels looks wrong." in page.text
    assert f"karat predict {tmp_path} DATA" in page.text


def test_many_classes_are_listed_by_their_commonest_confusions(tmp_path):
    make_run(tmp_path, 600, [f"class {number}" for number in range(40)])
    page = page_of(tmp_path)
    assert "mistaken for which" not in page.text
    assert "The other 10 classes" in page.text


def test_an_unfinished_run_and_no_run_are_one_sentence(tmp_path):
    make_run(tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(UserError, match=r"not finished.*--resume"):
        write_report(tmp_path / "run")
    with pytest.raises(UserError, match=r"There is no run in"):
        write_report(tmp_path)
    assert not (tmp_path / "run" / "report.html").exists()


def test_only_the_pages_own_script_and_style_may_run(tmp_path):
    """The policy names the hashes of what is in the page; there are no handlers, frames or addresses outside."""
    make_run(tmp_path, 60, HOSTILE, [HOSTILE[row % len(HOSTILE)] + str(row) for row in range(60)])
    text = write_report(tmp_path, grey, skipped=[(HOSTILE[1], HOSTILE[0])], notes=HOSTILE).read_text(encoding="utf-8")
    page = Parsed(text)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    data, script = page.scripts
    (style,) = page.styles
    assert policy == content_policy(style, script)
    assert "unsafe" not in policy
    assert json.loads(data)["classes"][: len(HOSTILE)] == list(HOSTILE)
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object", "embed", "base", "link", "form")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/"))
    assert not re.search(r"https?://", text)


def test_a_new_report_takes_the_place_of_the_old_one(tmp_path):
    make_run(tmp_path)
    write_report(tmp_path, grey)
    assert (tmp_path / "report_files" / "sheet-0000.png").exists()
    write_report(tmp_path, review_rows=10)
    assert {path.name for path in (tmp_path / "report_files").iterdir()} == {"rows-0000.js"}
    leftover = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert leftover == []


def test_what_is_reviewed_is_doubtful_in_order_and_limited():
    issues = pd.DataFrame(
        {"is_label_issue": [True, False, False, True], "label_quality": [0.1, 0.2, 0.9, np.nan], "index": [4, 3, 2, 1]}
    )
    assert review_table(issues, 10)["index"].tolist() == [4, 3, 1]
    assert review_table(issues, 2)["index"].tolist() == [4, 3]


def test_the_run_is_known_again_after_a_move_and_told_from_others(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=1)
    before = read_run(tmp_path / "a").identity
    (tmp_path / "a").rename(tmp_path / "c")
    assert read_run(tmp_path / "c").identity == before
    assert read_run(tmp_path / "b").identity != before


def test_a_sheet_holds_each_image_with_a_rim_of_its_own(tmp_path):
    """Tiles are 5 x 4 pixels of 3 x 2 images; place 12 is the third of the second row."""
    images = [np.full((2, 3), place, dtype=np.uint8) for place in range(13)]
    pixels = sheet(images, width=3, height=2)
    assert pixels.shape == (40, 50)
    assert (pixels[4:8, 10:15] == 12).all()
    assert (pixels[8:, :] == 0).all()

    photos = [np.full((400, 200, 3), 200, dtype=np.uint8)] * 101
    sheets = write_sheets(tmp_path, range(101), lambda rows: photos[: len(rows)])
    assert sheets.files == ["sheet-0000.jpg", "sheet-0001.jpg"]
    assert (sheets.width, sheets.height) == (80, 160)
    with Image.open(tmp_path / sheets.files[1]) as picture:
        assert picture.size == (820, 1620)


def test_json_for_scripts_reads_back_and_holds_no_markup():
    values = {"labels": [*HOSTILE, "\u2028", "\ud800", "<!--"]}
    text = script_safe(values)
    assert json.loads(text) == values
    assert not set("<>&\u2028") & set(text)
    assert text.isascii()


def test_what_is_known_of_the_truth_is_shown(tmp_path):
    """A run that knows the truth draws its reliability; one whose sample was decided says what that told."""
    make_run(tmp_path)
    assert "keep its word" not in write_report(tmp_path).read_text()
    right = torch.tensor([True] * 90 + [False] * 30)
    found = reliability(torch.cat([torch.full((100,), 0.95), torch.full((20,), 0.1)]), right)
    save_reliability(found, tmp_path / "reliability.json")
    share = {"value": 0.25, "low": 0.2, "high": 0.31}
    sample = {"sampled": 100, "wrong": share, "right_before": share, "right_after": None}
    (tmp_path / "sample_estimate.json").write_text(json.dumps(sample))
    page = write_report(tmp_path).read_text()
    assert "100 labels claim 95.0% and 90.0% of them are right" in page
    assert f"Expected calibration error {found.calibration_error:.3f}" in page
    assert "by 100 random rows; 95% interval 20.0% to 31.0%" in page
