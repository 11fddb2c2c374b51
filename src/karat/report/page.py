"""report.html: everything put together, in one page that makes no request but for the files beside it."""

import base64
import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import category

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from karat.errors import UserError
from karat.files.atomic import replacing
from karat.report import charts, sections, summary
from karat.report.pictures import FeatureRows, Thumbnail, data_address
from karat.report.plots import COLOURS
from karat.report.review import review_table, script_safe, write_review
from karat.report.run_files import RunFiles, read_run

REVIEW_ROWS = 5_000
GALLERY = 24
FILES = "report_files"
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
    table = review_table(run.issues, review_rows)
    new, old = folder / f".{FILES}.new", folder / FILES
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        review = write_review(new, table, run.classes, run.identity, thumbnail, features)
        gallery = _gallery(run.issues, thumbnail, features)
        page = _render(run, others, review, gallery, skipped, notes)
        if old.exists():
            shutil.rmtree(old)
        new.rename(old)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    path = folder / "report.html"
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode("utf-8", "xmlcharrefreplace"))  # a file name may hold a lone surrogate
    return path


def _gallery(issues: pd.DataFrame, thumbnail: Thumbnail | None, features: FeatureRows | None) -> list[dict[str, Any]]:
    """Return the most suspicious examples with their pictures inside the page."""
    top = issues[issues["is_label_issue"]].head(GALLERY)
    rows = top["index"].tolist()
    pictures = [data_address(image) for image in thumbnail(rows)] if thumbnail is not None and rows else None
    values = features.shown(rows) if thumbnail is None and features is not None and rows else None
    return [
        {
            **{name: getattr(row, name) for name in ("id", "given_label", "suggested_label", "label_quality")},
            "picture": pictures[place] if pictures else None,
            "values": list(zip(map(str, features.names), values[place], strict=False))[:4]
            if values and features is not None
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
            confusions=sections.confusions(run),
            classes=sections.class_table(run),
            weights=sections.weight_charts(run),
            coefficients=sections.coefficient_chart(run),
            curves=sections.curves(run, others),
            others=_comparison(run, others),
            gallery=gallery,
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
    _style(), _script(), _environment().get_template("report.html")


def _style() -> str:
    colours = "".join(f"--series-{place}:{colour};" for place, colour in enumerate(COLOURS))
    return f":root{{{colours}}}\n" + (_HERE / "assets" / "report.css").read_text(encoding="utf-8")


def _script() -> str:
    parts = [(_HERE / "assets" / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
