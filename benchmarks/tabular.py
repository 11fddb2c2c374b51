"""KaratClassifier against gradient boosting and logistic regression on tables with wrong labels.

    python benchmarks/tabular.py [--data wine breast_cancer covertype_like] [--noise symmetric] [--rates 0.4]

Ten trusted labels a class; the noise is on all other train labels. "symmetric" noise of rate 0.4 makes 40% wrong,
"uniform" noise redraws 40% from all classes, the right one included. Accuracy on held-out rows with true labels, mean ±
standard deviation over seeds (of split, noise, trusted rows and training), in percent; seconds of one fit. "all labels"
learns from noisy and trusted labels alike, "trusted" from the trusted ones alone.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from karat import KaratClassifier
from karat.noise_matrix import symmetric_transition, uniform_transition
from timing import machine

TRUSTED_PER_CLASS = 10
TRANSITIONS = {"uniform": uniform_transition, "symmetric": symmetric_transition}


class Table(NamedTuple):
    """Train rows with given and true labels, a mask of the trusted ones, and test rows with true labels."""

    X: pd.DataFrame
    given: np.ndarray
    true: np.ndarray
    trusted: np.ndarray
    test_X: pd.DataFrame
    test_y: np.ndarray


def covertype_like(seed: int, rows: int = 24_000) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a made-up forest: seven kinds of trees that depend on height, slope, light, water, area and soil."""
    draw = np.random.default_rng(seed)
    area = draw.choice(4, rows, p=[0.45, 0.05, 0.43, 0.07])
    soil = (3 * area + draw.choice(6, rows, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])) % 12
    elevation = 2950 + 250 * np.array([0.2, 0.9, 0.0, -1.6])[area] + 180 * draw.standard_normal(rows)
    aspect, slope = draw.uniform(0, 360, rows), draw.gamma(3, 4.5, rows)
    water = draw.gamma(1.5, 180, rows)
    above_water = 0.2 * water * draw.standard_normal(rows)
    road = draw.gamma(2, 1200, rows) * (1 + (elevation - 2950) / 2000).clip(0.2)
    fire = draw.gamma(2, 1000, rows)
    steep = 3 * np.sin(np.radians(slope))
    light = {
        hour: 220 + 30 * steep * np.cos(np.radians(aspect - angle)) + 8 * draw.standard_normal(rows)
        for hour, angle in (("morning", 60), ("noon", 180), ("evening", 300))
    }
    warm, height = steep * np.cos(np.radians(aspect - 200)), (elevation - 2950) / 250
    likes = 1.2 * np.random.default_rng(0).normal(size=(12, 7))[soil]  # the same soils in every seed
    likes -= 2.0 * (height[:, None] - np.array([0.7, 0.0, -1.2, -1.8, -0.3, -1.1, 1.8])) ** 2
    likes[:, 0] += np.where(fire > 1500, 0.8, -0.3) - 0.5 * warm
    likes[:, 1] += 1.5 * warm + 0.6
    likes[:, 2] += 1.2 * warm
    likes[:, 3] += 3.0 * np.exp(-water / 150)
    likes[:, 4] += 2.0 * (np.abs(above_water) < 10) - 1
    likes[:, 5] -= 1.8 * warm
    likes[:, 6] += 0.5 * np.log1p(road / 1000)
    numbers = {"elevation": elevation, "aspect": aspect, "slope": slope, "water": water, "above_water": above_water}
    categories = {
        "area": pd.Categorical(area.astype(str)),
        "soil": pd.Categorical(np.char.add("soil ", soil.astype(str))),
    }
    return pd.DataFrame({**numbers, "road": road, **light, "fire": fire, **categories}), likes.argmax(axis=1)


def bundled(load: Callable[..., Any]) -> Callable[[int], tuple[pd.DataFrame, np.ndarray]]:
    """Return a loader of one of scikit-learn's own tables; they are the same for every seed."""

    def loaded(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
        X, y = load(return_X_y=True, as_frame=True)
        return X, y.to_numpy()

    return loaded


DATA = {"wine": bundled(load_wine), "breast_cancer": bundled(load_breast_cancer), "covertype_like": covertype_like}


def make_table(name: str, noise: str, rate: float, seed: int) -> Table:
    """Split the rows, choose the trusted ones and draw the noise of the others."""
    X, y = DATA[name](seed)
    test_size = 4_000 if len(X) > 10_000 else 0.3
    X, test_X, true, test_y = train_test_split(X, y, test_size=test_size, stratify=y, random_state=seed)
    draw = np.random.default_rng(seed)
    trusted = np.zeros(len(true), dtype=bool)
    for label in np.unique(true):
        trusted[draw.choice(np.flatnonzero(true == label), TRUSTED_PER_CLASS, replace=False)] = True
    chances = TRANSITIONS[noise](int(true.max()) + 1, rate).numpy()[true]
    drawn = (draw.random((len(true), 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=true.max())
    return Table(X, np.where(trusted, true, drawn), true, trusted, test_X, test_y)


def logistic(seed: int) -> Any:
    """Return logistic regression on standardised numbers and one column a category."""
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
    )
    return make_pipeline(columns, LogisticRegression(max_iter=1000))


def boosting(seed: int, rows: int = 10_000) -> Any:
    """Return gradient boosting; with its usual 20 rows a leaf, thirty trusted rows would grow no tree."""
    leaf = 20 if rows > 200 else 3
    return HistGradientBoostingClassifier(categorical_features="from_dtype", min_samples_leaf=leaf, random_state=seed)


def karat(seed: int) -> Any:
    """Return Karat with its defaults."""
    return KaratClassifier(random_state=seed, device="cpu")


def fits(table: Table, seed: int) -> dict[str, Callable[[], Any]]:
    """Return what is compared: functions that return a fitted model."""
    few = table.X[table.trusted], table.true[table.trusted]
    return {
        "KaratClassifier": lambda: karat(seed).fit(table.X, table.given, trusted=table.trusted),
        "HistGradientBoosting, all labels": lambda: boosting(seed).fit(table.X, table.given),
        "HistGradientBoosting, trusted": lambda: boosting(seed, len(few[1])).fit(*few),
        "LogisticRegression, all labels": lambda: logistic(seed).fit(table.X, table.given),
        "LogisticRegression, trusted": lambda: logistic(seed).fit(*few),
    }


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--noise", default="symmetric", choices=list(TRANSITIONS))
    parser.add_argument("--rates", nargs="+", type=float, default=[0.4])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--large-seeds", type=int, default=3, help="seeds of covertype_like")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(machine())
    print("\n| data | noise | method | accuracy | seconds | AUROC of the issues |\n|---|---|---|---|---|---|")
    for name in options.data:
        for rate in options.rates:
            seeds = options.large_seeds if name == "covertype_like" else options.seeds
            accuracies: dict[str, list[float]] = {}
            seconds: dict[str, list[float]] = {}
            found = []
            for seed in range(seeds):
                table = make_table(name, options.noise, rate, seed)
                for method, fit in fits(table, seed).items():
                    began = time.process_time()
                    model = fit()
                    seconds.setdefault(method, []).append(time.process_time() - began)
                    accuracies.setdefault(method, []).append(100 * model.score(table.test_X, table.test_y))
                    if method == "KaratClassifier":
                        issues = model.label_issues_
                        wrong = (table.given != table.true)[issues["index"]]
                        found.append(roc_auc_score(wrong, -issues["label_quality"]))
            for method, values in accuracies.items():
                spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
                issue = f"{statistics.mean(found):.3f}" if method == "KaratClassifier" else ""
                print(
                    f"| {name} | {options.noise} {rate:.0%} | {method} | {statistics.mean(values):.1f}{spread} "
                    f"| {statistics.mean(seconds[method]):.1f} | {issue} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
