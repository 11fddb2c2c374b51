"""report.html: everything put together, in one page that makes no request but for the files beside it."""

import base64
import hashlib
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unicodedata import category

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from karat.errors import UserError
from karat.files.atomic import replacing
from karat.files.required import fitting
from karat.files.safe_csv import read_safe_csv
from karat.report import REVIEW_ROWS, charts, sections, summary
from karat.report.pictures import FeatureRows, Thumbnail, data_address
from karat.report.plots import COLOURS
from karat.report.review import review_table, script_safe, varied, write_review
from karat.report.run_files import NUMBERS, RunFiles, read_run

GALLERY = 24
FOLDED = 240  # characters of a text that are shown before the rest is asked for
FILES = "report_files"
SAMPLE_FILES = "sample_files"
_HERE = Path(__file__).parent
_JOINERS = "\u200c\u200d"  # invisible, but a part of Persian and Indian words and of emoji
_SCRIPTS = ("page", "csv", "store", "rows", "grid", "chooser", "example", "review")  # in this order


def write_report(
    folder: Path,
    thumbnail: Thumbnail | None = None,
    features: FeatureRows | None = None,
    review_rows: int = REVIEW_ROWS,
    compare: Sequence[Path] = (),
    skipped: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> Path:
    """Write report.html and report_files/ of a finished run; return the path of the page.

    `thumbnail` gives the images (uint8, HxW or HxWx3) of rows by their `index`, `features` the values of table rows.
    `skipped` are (name, reason) of what could not be read. Files of an earlier report are replaced.
    """
    if review_rows < 0:
        raise UserError(f"--review-rows is {review_rows}: write how many rows to review, 0 for none.")
    run, others = read_run(folder), [read_run(other) for other in compare]
    with _shown(folder), _files(folder / FILES) as files:
        table = review_table(run.issues, review_rows, run.suggested)
        review = write_review(files, table, run.classes, run.identity, thumbnail, features)
        gallery = _gallery(run.issues, thumbnail, features)
        page = _render(run, others, {**review, "folder": FILES, "blind": False}, gallery, skipped, notes)
    return _write_page(folder / "report.html", page)


def write_sample_page(folder: Path, thumbnail: Thumbnail | None = None, features: FeatureRows | None = None) -> Path:
    """Write sample.html and sample_files/ from sample.csv: the review, blind to everything that is thought of a row."""
    run, sample = read_run(folder), read_safe_csv(folder / "sample.csv")
    nothing = dict.fromkeys(NUMBERS, float("nan"))
    table = sample.assign(is_label_issue=False, suggested_label="", **nothing)
    with _shown(folder), _files(folder / SAMPLE_FILES) as files:
        rows = hashlib.blake2b(script_safe(table["index"].tolist()).encode(), digest_size=6).hexdigest()
        review = write_review(files, table, run.classes, f"{run.identity}:sample:{rows}", thumbnail, features)
        style, script = _style(), _script()
        page = (
            _environment()
            .get_template("sample.html")
            .render(
                run=run,
                style=style,
                script=script,
                policy=content_policy(style, script),
                review_json=script_safe({**review, "folder": SAMPLE_FILES, "blind": True}),
                reviewed=review["count"],
                command=f"karat estimate {shlex.quote(str(folder))} decisions.csv",
            )
        )
    return _write_page(folder / "sample.html", page)


@contextmanager
def _shown(folder: Path) -> Iterator[None]:
    """Say in a sentence that the files of a run, which may come from anybody, do not hold what a page shows."""
    with fitting(folder, "one of its files does not hold what a run writes, restore it"):
        try:
            yield
        except TemplateError as error:
            raise ValueError(str(error)) from error


@contextmanager
def _files(folder: Path) -> Iterator[Path]:
    """Give a folder for the files beside a page; it takes the place of an earlier one when all of them are written."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write_page(path: Path, page: str) -> Path:
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode("utf-8", "xmlcharrefreplace"))  # a file name may hold a lone surrogate
    return path


def _gallery(issues: pd.DataFrame, thumbnail: Thumbnail | None, features: FeatureRows | None) -> list[dict[str, Any]]:
    """Return the most suspicious examples with their pictures inside the page."""
    top = varied(issues[issues["is_label_issue"]], GALLERY)
    rows = top["index"].tolist()
    pictures = [data_address(image) for image in thumbnail(rows)] if thumbnail is not None and rows else None
    texts = features is not None and features.texts
    values = features.shown(rows) if thumbnail is None and features is not None and rows else None
    return [
        {
            **{name: getattr(row, name) for name in ("id", "given_label", "suggested_label", "label_quality")},
            "picture": pictures[place] if pictures else None,
            "text": values[place][0] if values and texts else None,
            "values": list(zip(map(str, features.names), values[place], strict=False))[:4]
            if values and features is not None and not texts
            else [],
        }
        for place, row in enumerate(top.itertuples())
    ]


def _render(
    run: RunFiles,
    others: Sequence[RunFiles],
    review: dict[str, Any],
    gallery: Sequence[dict[str, Any]],
    skipped: Sequence[tuple[str, str]],
    notes: Sequence[str],
) -> str:
    style, script = _style(), _script()
    return (
        _environment()
        .get_template("report.html")
        .render(
            run=run,
            data_name=Path(str((run.config.get("data") or {}).get("name", ""))).name,
            style=style,
            script=script,
            policy=content_policy(style, script),
            review_json=script_safe(review),
            reviewed=review["count"],
            headline=summary.headline(run),
            key_numbers=summary.key_numbers(run),
            step=summary.next_step(run, review["count"]),
            warnings=[*summary.warnings(run), *notes],
            matrix=sections.noise_matrix(run),
            reliability=sections.label_reliability(run),
            confusions=sections.confusions(run),
            classes=sections.class_table(run),
            weights=sections.weight_charts(run),
            coefficients=sections.coefficient_chart(run),
            curves=sections.curves(run, others),
            others=_comparison(run, others),
            gallery=gallery,
            folded=FOLDED,
            skipped=skipped,
            settings=summary.settings(run),
            cost=summary.cost(run),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(bar=charts.bar, readable=readable)
    return environment


def content_policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: this very style and script, data files beside it, nothing else."""
    return (
        f"default-src 'none'; script-src {_digest(script)} 'self' file:; style-src {_digest(style)}; "
        "img-src 'self' file: data:; base-uri 'none'; form-action 'none'"
    )


def readable(text: object) -> str:
    """Return a name as it can be seen: characters that are invisible or turn the direction of text would deceive.

    >>> readable("two\\nlines"), readable("\\u202egnp.exe"), readable("cat\\u200b"), readable("")
    ('two⏎lines', '�gnp.exe', 'cat�', '(empty)')
    """
    lines = re.sub(r"[\n\r]+", "⏎", str(text))
    return "".join("�" if category(one) in ("Cc", "Cf") and one not in _JOINERS else one for one in lines) or "(empty)"


def _comparison(run: RunFiles, others: Sequence[RunFiles]) -> list[dict[str, Any]]:
    rows = []
    for one in (run, *others) if others else ():
        accuracy, seconds = summary.test_accuracy(one.results), one.results.get("seconds")
        rows.append(
            {
                "name": one.name,
                "method": one.config.get("method", ""),
                "accuracy": None if accuracy is None else accuracy["top1"],
                "issues": int(one.issues["is_label_issue"].sum()),
                "time": "" if seconds is None else summary.duration(seconds),
            }
        )
    return rows


def check_assets() -> None:
    """Fail where a file of the page was not installed."""
    _style(), _script(), _environment().get_template("report.html"), _environment().get_template("sample.html")


def _style() -> str:
    colours = "".join(f"--series-{place}:{colour};" for place, colour in enumerate(COLOURS))
    return f":root{{{colours}}}\n" + (_HERE / "assets" / "report.css").read_text(encoding="utf-8")


def _script() -> str:
    parts = [(_HERE / "assets" / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
