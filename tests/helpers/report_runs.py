"""Run folders for the tests of the report, written from nothing but the columns that the files promise."""

import json

import numpy as np
import pandas as pd
import yaml

from karat.files.safe_csv import write_safe_csv

HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "=1+1",
    "../../x",
    "'; window.hacked = 1; //",
    "</script><script>window.hacked = 1</script>",
    "שלום עולם",
    "\u202egnp.exe",
    "hid\u200bden",
    "two\nlines",
    "{{ 7 * 7 }}",
    "x" * 500,
    "NA",
    "<svg/onload=window.hacked=1>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<a href='javascript:window.hacked=1'>x</a>",
    "javascript:window.hacked=1",
    "<math><mtext><style><img src=x onerror=window.hacked=1></style></mtext></math>",
    "<!--<script>-->window.hacked=1<!--</script>-->",
    "\\u003cscript\\u003ewindow.hacked=1\\u003c/script\\u003e",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "<style>@import '//127.0.0.1:9/x.css'</style>",
    "<link rel=stylesheet href=//127.0.0.1:9/x>",
    "<base href=//127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;url=//127.0.0.1:9/'>",
    "<form action=//127.0.0.1:9/><button autofocus onfocus=window.hacked=1>",
    "` + (window.hacked = 1) + `",
    "__proto__",
    "constructor",
)


def make_run(folder, count=200, classes=("ant", "bee", "cat"), names=None, seed=0, measured=True, redrawn=0.4):
    """Write a finished run; a redrawn label that is not the true one by chance is an issue, ranked by its quality."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    classes = np.array(classes, dtype=object)
    true, given = (random.integers(len(classes), size=count) for _ in range(2))
    given = np.where(random.random(count) < redrawn, given, true)
    issue = given != true
    quality = np.where(issue, random.beta(1, 12, count), random.beta(9, 1.5, count))
    weight = np.where(issue, random.exponential(0.15, count), random.gamma(6, 0.25, count))
    nothing = np.full(count, np.nan)
    table = pd.DataFrame(
        {
            "id": list(names) if names is not None else [f"images/{row:05d}.png" for row in range(count)],
            "index": np.arange(count) * 3,
            "given_label": classes[given],
            "predicted_label": classes[true],
            "is_label_issue": issue,
            "label_quality": quality,
            "suggested_label": np.where(issue, classes[true], ""),
            "suggestion_confidence": np.where(issue, 1 - quality, nothing),
            "mean_weight": weight if measured else nothing,
            "mean_label_trust": (1 - issue * 0.9) if measured else nothing,
            "helpful_label": classes[true],
            "mean_loss": -np.log(quality.clip(1e-3)),
            "times_seen": np.full(count, 30),
        }
    ).sort_values("label_quality", kind="stable", ignore_index=True)
    write_safe_csv(table, folder / "label_issues.csv")
    matrix = np.full((len(classes), len(classes)), 0.3 / max(len(classes) - 1, 1))
    np.fill_diagonal(matrix, 0.7)
    estimate = {
        "rate": 0.3,
        "low": 0.25,
        "high": 0.36,
        "level": 0.95,
        "examples": count,
        "transition": matrix.tolist(),
        "classes": classes.tolist(),
        "note": "Calibrated on 30 trusted examples.",
        "per_class": [{"class": name, "count": 10, "wrong_share": 0.3} for name in classes],
        "calibrated_on": {"count": 30, "accuracy": 0.9},
    }
    config = {"method": "ieg", "seed": seed, "data": {"name": "insects.csv"}, "methods": {"gce": {"exponent": 0.4}}}
    accuracy = {"top1": 0.914, "top5": 0.99, "loss": 0.3, "count": 500}
    results = {"selected": accuracy, "noise_rate": None, "seconds": 754.0, "peak_memory": 900 * 2**20}
    epochs = np.arange(1, 31)
    records = [
        {
            "step": int(24 * epoch),
            "epoch": float(epoch),
            "accuracy": float(0.914 - 0.6 * np.exp(-epoch / 5)),
            "raw_accuracy": float(0.9 - 0.6 * np.exp(-epoch / 6)),
            "given_label_accuracy": 0.6,
            "label_trust": 0.7,
            "total": float(4 + 4 * np.exp(-epoch / 9)),
            "weighted": float(1 + np.exp(-epoch / 8)),
            "zero_weight_share": float(0.4 - 0.2 / epoch),
            "collapsed_share": 0.0,
        }
        for epoch in epochs
    ]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for name, values in {
        "noise_estimate": estimate,
        "results": results,
        "environment": {"python": "3.11", "karat": "0.1.0", "device": "cpu"},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return table


def grey(rows, size=8):
    """Return an image a row; its brightness is the row's number modulo 256."""
    return [np.full((size, size), row % 256, dtype=np.uint8) for row in rows]
