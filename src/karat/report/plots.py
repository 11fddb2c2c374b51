"""Figures of runs, drawn from their metrics: accuracy, coefficients, and the most suspicious labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from karat.audit.estimate import wilson
from karat.audit.reliability import Reliability
from karat.errors import UserError
from karat.files.atomic import replacing

Records = Sequence[Mapping[str, Any]]

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#7F7F7F", "#CC79A7", "#E69F00", "#56B4E9")
CLEAN, MISLABELLED = COLOURS[0], COLOURS[1]


def accuracy_curves(runs: Mapping[str, Records], title: str = "Test accuracy") -> Figure:
    """Draw the test accuracy (averaged weights) of one or several runs over their epochs."""
    figure, axes = new_figure(title)
    for (name, records), colour in zip(runs.items(), COLOURS, strict=False):
        epochs = [record["epoch"] for record in records]
        accuracy = [record["accuracy"] for record in records]
        axes.plot(epochs, accuracy, color=colour, label=f"{name} ({accuracy[-1]:.1%})", linewidth=1.8)
    axes.set_ylim(top=1.005)
    axes.set_ylabel("accuracy on test examples")
    axes.legend(loc="lower right", frameon=False)
    return figure


def coefficient_curves(records: Records) -> Figure:
    """Draw the mean label trust of right and wrong labels, and how much of all weight is on each (figure 4).

    All records have the same of these; a method may have only one of them.
    """
    figure, axes = new_figure("What the trusted examples say about the noisy labels")
    epochs = [record["epoch"] for record in records]
    if "clean_label_trust" in records[0]:
        trust = {"right": "clean_label_trust", "wrong": "mislabelled_label_trust"}
        for (name, key), colour in zip(trust.items(), (CLEAN, MISLABELLED), strict=True):
            axes.plot(epochs, [r[key] for r in records], color=colour, label=f"mean trust (λ) in {name} labels")
    if "clean_weight_share" in records[0]:
        share = [record["clean_weight_share"] for record in records]
        wrong = [None if value is None else 1 - value for value in share]
        axes.plot(epochs, share, color=CLEAN, linestyle="--", label="share of weight (ω) on right labels")
        axes.plot(epochs, wrong, color=MISLABELLED, linestyle="--", label="share of weight (ω) on wrong labels")
    axes.set_ylim(-0.02, 1.02)
    axes.legend(loc="center right", frameon=False)
    return figure


def suspicious_gallery(
    images: Sequence[Any], given: Sequence[str], predicted: Sequence[str], columns: int = 10
) -> Figure:
    """Draw images with their given label and the one that the model predicts."""
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(1.1 * columns, 1.45 * rows + 0.6), layout="constrained")
    figure.suptitle("Most suspicious labels: given → predicted")
    for place, (image, old, new) in enumerate(zip(images, given, predicted, strict=True)):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        axes.set_title(f"{old} → {new}", fontsize=10, parse_math=False)
        axes.set_axis_off()
    return figure


def reliability_curve(found: Reliability) -> Figure:
    """Draw how often labels are right over how often they claim it; the area of a dot is the number of labels."""
    figure, axes = new_figure(
        "Does label quality keep its word?", over="label quality: the claim that a label is right"
    )
    axes.plot([0, 1], [0, 1], color=COLOURS[3], linestyle="--", linewidth=1.2, label="as often right as claimed")
    for one in found.bins:
        low, high = wilson(one.right, one.count)
        size = 5 + 28 * (one.count / found.count) ** 0.5
        axes.plot([one.claimed] * 2, [low, high], color=CLEAN, linewidth=1.4)
        axes.plot(one.claimed, one.right, "o", color=CLEAN, markersize=size, alpha=0.55, markeredgewidth=0)
        axes.annotate(f"{one.count:,}", ((one.low + one.high) / 2, 1.13), fontsize=9, ha="center")
    axes.annotate("labels", (-0.05, 1.13), fontsize=9, ha="center")
    axes.plot([], [], "o-", color=CLEAN, label="labels of one tenth of the scale, with the 95% interval of chance")
    axes.set_xticks([tenth / 10 for tenth in range(11)])
    axes.set_yticks([fifth / 5 for fifth in range(6)])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlim(-0.1, 1.06)
    axes.set_ylim(-0.08, 1.2)
    axes.set_ylabel("labels that are really right")
    figure.legend(loc="outside lower center", frameon=False, ncols=2, fontsize=9)
    return figure


def save_reliability_figure(found: Reliability | None, path: Path) -> None:
    """Draw the reliability curve of an audit, where the truth is known."""
    if found is None:
        raise UserError("Nobody knows the true labels of this run, so there is nothing to draw: leave --figure out.")
    save_figure(reliability_curve(found), path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as .png and .svg."""
    for kind in ("png", "svg"):
        with replacing(path.with_suffix(f".{kind}")) as temporary:
            figure.savefig(temporary, format=kind, dpi=150)


def line_style(number: int) -> dict[str, Any]:
    """Return the colour and stroke of the n-th of many lines: colours first, then dashes."""
    strokes = ("-", "--", "-.", (0, (1, 1)))
    colour, stroke = number % len(COLOURS), number // len(COLOURS)
    return {"color": COLOURS[colour], "linestyle": strokes[stroke % len(strokes)], "linewidth": 1.6}


def new_figure(title: str, over: str = "epoch") -> tuple[Figure, Any]:
    """Return a figure with one frame for shares over epochs or another quantity."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left")
    axes.set_xlabel(over)
    axes.xaxis.set_major_locator(MaxNLocator(integer=over == "epoch"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
