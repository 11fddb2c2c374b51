"""The drawings of a report, from the files of a run; None or an empty list where a run has no such thing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from karat.report.charts import (
    Chart,
    Line,
    ReliabilityPoint,
    heat_map,
    histogram,
    line_chart,
    reliability_chart,
    scatter,
    series,
)
from karat.report.plots import COLOURS
from karat.report.run_files import RunFiles

MATRIX_CLASSES = 20  # more do not fit: then the commonest confusions are listed
SAMPLED = 1_500  # dots of the scatter: more hide each other
_NO_LOSS = re.compile("step|epoch|rate|seconds|test_examples|.*(accuracy|top5|share|trust)")  # the other metrics
_TOTAL = ("total", "loss")
_LOSSES = {"loss": "total", "weighted": "weighted (ω)", "relabelled": "relabelled (λ)"}  # where words say more
_COEFFICIENTS = {  # in the metrics -> name, colour, dashed
    "clean_label_trust": ("trust (λ) in right labels", 0, False),
    "mislabelled_label_trust": ("trust (λ) in wrong labels", 1, False),
    "clean_weight_share": ("share of weight (ω) on right labels", 0, True),
    "label_trust": ("mean label trust (λ)", 2, False),
    "zero_weight_share": ("share of examples without weight (ω = 0)", 3, True),
}
_RAW = {
    "raw_accuracy": ("raw weights", 0, True),
    "given_label_accuracy": ("agreement with the given labels", 3, False),
}
_AGREEMENT = {
    "trusted_accuracy": ("trusted labels (seen in training)", 0, False),
    "given_label_accuracy": ("given labels (seen in training)", 1, False),
    "validation_accuracy": ("given labels of held-out examples", 2, False),
}


def transition(run: RunFiles) -> tuple[list[list[float | None]], list[str]] | None:
    """Return transition[true, given] with its classes: the estimated one, or else the realised one where known."""
    matrix = run.estimate.get("transition") or run.noise.get("realised_transition")
    names = run.classes
    if not matrix or len(matrix) != len(names):
        return None
    return [list(row) if row else [None] * len(names) for row in matrix], names


def noise_matrix(run: RunFiles) -> Chart | None:
    """Draw the transition matrix of a few classes."""
    found = transition(run)
    if found is None or len(found[1]) > MATRIX_CLASSES:
        return None
    estimated = bool(run.estimate.get("transition"))
    source = "Estimated" if estimated else "Realised, as the noise was drawn here"
    explanation = f"{source}. A row says what becomes of a true class, in percent; orange cells are mistakes."
    return heat_map("Which class is mistaken for which", found[0], found[1], explanation)


def label_reliability(run: RunFiles) -> Chart | None:
    """Draw how often labels are right against how often they claim it; None where nobody knows the truth."""
    found = run.reliability
    if not found:
        return None
    changed = found.get("changed_errors")
    promised = (run.estimate.get("changes") or {}).get("error_rate")
    cleaned = (
        ""
        if changed is None or promised is None
        else (f" Of the changed labels {changed:.1%} are wrong; at most {promised:.1%} was asked for.")
    )
    return reliability_chart(
        "Does label quality keep its word?",
        [ReliabilityPoint(**{name: one[name] for name in ("count", "claimed", "right")}) for one in found["bins"]],
        f"The truth is known here. A dot is a tenth of the scale, and its area the number of labels; on the line they "
        f"are right as often as they claim. Expected calibration error {found['calibration_error']:.3f}, Brier score "
        f"{found['brier']:.3f}, log score {found['log_score']:.3f}.{cleaned}",
    )


def confusions(run: RunFiles, count: int = 20) -> list[dict[str, Any]]:
    """Return the commonest pairs (given, suggested) among the label issues."""
    issues = run.issues[run.issues["is_label_issue"] & (run.issues["suggested_label"] != "")]
    pairs = issues.groupby(["given_label", "suggested_label"], sort=False).size()
    top = pairs.sort_values(ascending=False, kind="stable").head(count)
    most = int(top.iloc[0]) if len(top) else 1
    return [
        {"given": given, "suggested": suggested, "count": int(number), "share": number / most}
        for (given, suggested), number in top.items()
    ]


def class_table(run: RunFiles) -> list[dict[str, Any]]:
    """Return the classes by the share of doubtful labels, the worst first."""
    wrong = {str(row.get("class")): row.get("wrong_share") for row in run.estimate.get("per_class") or ()}
    suggested = run.issues[run.issues["is_label_issue"] & (run.issues["suggested_label"] != "")]
    instead = suggested.groupby("given_label")["suggested_label"].agg(lambda labels: labels.mode().iloc[0]).to_dict()
    rows = []
    for name, part in run.issues.groupby("given_label"):
        quality = part["label_quality"].mean()
        rows.append(
            {
                "name": name,
                "count": len(part),
                "issues": int(part["is_label_issue"].sum()),
                "share": float(part["is_label_issue"].mean()),
                "quality": None if np.isnan(quality) else float(quality),
                "wrong": wrong.get(str(name)),
                "instead": instead.get(name, ""),
            }
        )
    return sorted(rows, key=lambda row: -row["share"])


def weight_charts(run: RunFiles) -> list[Chart]:
    """Draw the histogram of the weights, and weight against loss for a sample."""
    issue = run.issues["is_label_issue"].to_numpy()
    weight, loss = run.issues["mean_weight"].to_numpy(dtype=float), run.issues["mean_loss"].to_numpy(dtype=float)
    groups = (("no issue", 0, ~issue), ("label issue", 1, issue))
    bars = histogram(
        "How much each example counts",
        [(name, colour, weight[chosen]) for name, colour, chosen in groups],
        "mean weight (1 is an ordinary example)",
        "Examples that training learned to ignore are at the left. All of them there means that the weights collapsed.",
    )
    sample = np.zeros(len(issue), dtype=bool)
    sample[np.random.default_rng(0).permutation(len(issue))[:SAMPLED]] = True
    points = np.stack([loss, weight], axis=1)
    chosen = f" A sample of {SAMPLED:,}." if len(issue) > SAMPLED else ""
    dots = scatter(
        "Weight against loss",
        [(name, colour, points[chosen & sample]) for name, colour, chosen in groups],
        "mean loss of the given label",
        "mean weight",
        "A wrong label has a high loss and should get little weight; a hard but right one keeps its weight." + chosen,
    )
    return [chart for chart in (bars, dots) if chart is not None]


def coefficient_chart(run: RunFiles) -> Chart | None:
    """Draw label trust and weights over the epochs, of right and wrong labels where these are known."""
    known = _has(run, "clean_label_trust")  # then the mean says no more than its two parts
    lines = _lines(run, {key: line for key, line in _COEFFICIENTS.items() if not (known and key == "label_trust")})
    explanation = "λ is 1 where the given label is kept and 0 where the model's own is used instead."
    return line_chart("Label trust and weights over the epochs", lines, "share", shares=True, explanation=explanation)


def curves(run: RunFiles, others: Sequence[RunFiles] = ()) -> list[Chart]:
    """Draw accuracy, with that of other runs, and the terms of the loss."""
    if not _has(run, "accuracy"):
        agreement = "No test examples: the accuracy on new data was not measured."
        accuracy = line_chart("Agreement with labels", _lines(run, _AGREEMENT), "share", True, agreement)
    else:
        averaged = Line(run.name if others else "averaged weights", series(run.metrics, "accuracy"), 0)
        beside = [Line(o.name, series(o.metrics, "accuracy"), 1 + n % 6) for n, o in enumerate(others)]
        rest = _lines(run, _RAW if not others else {})
        overfitting = "Agreement with the given labels above the share of right ones means that mistakes are learned."
        accuracy = line_chart(
            "Test accuracy", [averaged, *beside, *rest], "accuracy", True, "" if others else overfitting
        )
    loss = line_chart("Training loss", _losses(run), "loss", shares=False)
    return [chart for chart in (accuracy, loss) if chart is not None]


def _losses(run: RunFiles) -> list[Line]:
    """Return the terms of the loss, whatever the method calls them, the whole of it first."""
    found = dict.fromkeys(key for record in run.metrics for key in record if not _NO_LOSS.fullmatch(key))
    terms = sorted((key for key in found if _has(run, key)), key=lambda key: key not in _TOTAL)
    return [
        Line(_LOSSES.get(key, key.replace("_", " ")), series(run.metrics, key), n % len(COLOURS), key not in _TOTAL)
        for n, key in enumerate(terms)
    ]


def _has(run: RunFiles, key: str) -> bool:
    return any(record.get(key) is not None for record in run.metrics)


def _lines(run: RunFiles, wanted: Mapping[str, tuple[str, int, bool]]) -> list[Line]:
    """Return the lines of these metrics, as far as the metrics have them; values are name, colour, dashed."""
    found = [(key, line) for key, line in wanted.items() if _has(run, key)]
    return [Line(name, series(run.metrics, key), colour, dashed) for key, (name, colour, dashed) in found]
