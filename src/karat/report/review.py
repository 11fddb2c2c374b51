"""What the review page works on: which rows, and the data files that it reads with <script src>."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from karat.files.atomic import write_text
from karat.report.pictures import SHOWN_COLUMNS, FeatureRows, Thumbnail, write_sheets

ROWS_A_FILE = 10_000
VALUES_A_FILE = 250
DOUBTFUL = 0.5  # a label of lower quality is worth a look even where another one is not suggested


def review_table(issues: pd.DataFrame, limit: int, first: Sequence[int] = ()) -> pd.DataFrame:
    """Return the label issues and the rows of low quality, the most suspicious first, up to the limit.

    Before them come the rows whose `index` is in `first`, in that order, as `karat suggest` names them.
    """
    asked = issues["index"].isin(first)
    place = {index: number for number, index in enumerate(first)}
    doubtful = (issues["is_label_issue"] | (issues["label_quality"] < DOUBTFUL)) & ~asked
    suggested = issues[asked].sort_values("index", key=lambda indices: indices.map(place))
    return pd.concat([suggested, issues[doubtful]]).head(limit)


def varied(issues: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the first rows, but no given label among them more than twice as often as in an even mixture.

    Where many labels are surely wrong, their order says little, and all of the first ones may have the same label.

    >>> varied(pd.DataFrame({"given_label": list("aaaaab")}), 2).index.tolist()
    [0, 1]
    >>> varied(pd.DataFrame({"given_label": list("aaaaabcd")}), 4).index.tolist()
    [0, 1, 5, 6]
    """
    most = -(-2 * count // max(1, issues["given_label"].nunique()))
    later = issues.groupby("given_label").cumcount() >= most
    return pd.concat([issues[~later], issues[later]]).head(count)


def script_safe(values: Any) -> str:
    """Write JSON that no HTML parser can take for markup; it is JavaScript, too.

    >>> script_safe({"label": "</script>"})
    '{"label":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)  # ASCII: no U+2028, no lone surrogate
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def write_review(
    folder: Path,
    table: pd.DataFrame,
    classes: Sequence[str],
    identity: str,
    thumbnail: Thumbnail | None,
    features: FeatureRows | None,
) -> dict[str, Any]:
    """Write thumbnails, values and rows into a folder; return what the page must know about them."""
    names = list(dict.fromkeys([*classes, *table["given_label"], *table["suggested_label"]]))
    names = [name for name in names if name or name in classes]  # no suggestion is no class
    number = {name: place for place, name in enumerate(names)}
    rows = table["index"].tolist()
    review: dict[str, Any] = {"run": identity, "classes": names, "count": len(table), "files": []}
    if thumbnail is not None and rows:
        sheets = write_sheets(folder, rows, thumbnail)
        review["sheets"] = {"files": sheets.files, "width": sheets.width, "height": sheets.height}
    elif features is not None and rows:
        review["values"] = _write_values(folder, rows, features)
    for start in range(0, len(table), ROWS_A_FILE):
        part = table.iloc[start : start + ROWS_A_FILE]
        columns = {
            "id": part["id"].tolist(),
            "index": part["index"].tolist(),
            "issue": part["is_label_issue"].astype(int).tolist(),
            "given": part["given_label"].map(number).tolist(),
            "suggested": [number.get(label, -1) if label else -1 for label in part["suggested_label"]],
            "quality": _rounded(part["label_quality"]),
            "confidence": _rounded(part["suggestion_confidence"]),
            "weight": _rounded(part["mean_weight"]),
            "trust": _rounded(part["mean_label_trust"]),
            "loss": _rounded(part["mean_loss"]),
        }
        file = f"rows-{start // ROWS_A_FILE:04d}.js"
        write_text(folder / file, f"karatRows({script_safe(columns)});\n")
        review["files"].append(file)
    return review


def _write_values(folder: Path, rows: Sequence[int], features: FeatureRows) -> dict[str, Any]:
    for start in range(0, len(rows), VALUES_A_FILE):
        part = features.shown(rows[start : start + VALUES_A_FILE])
        number = start // VALUES_A_FILE
        write_text(folder / f"values-{number:04d}.js", f"karatValues({number},{script_safe(part)});\n")
    names = [str(name) for name in features.names]
    return {"names": names[:SHOWN_COLUMNS], "all": len(names), "rows": VALUES_A_FILE, "texts": features.texts}


def _rounded(column: pd.Series) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 3) for value in column.tolist()]
