"""The words of a report: headline, key numbers, what to do next, warnings."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.report.run_files import RunFiles


@dataclass(frozen=True)
class KeyNumber:
    """A number that counts: what it is, its value, and a line that qualifies it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class NextStep:
    """What to do now, in a sentence or two, with the exact command."""

    text: str
    command: str


def headline(run: RunFiles) -> str:
    """Return the one sentence that a reader takes away."""
    total, found = len(run.issues), int(run.issues["is_label_issue"].sum())
    rate = run.estimate.get("rate")
    if found == 0:
        return f"None of the {total:,} labels looks wrong."
    if isinstance(rate, (int, float)):
        return f"About {rate:.0%} of {total:,} labels are wrong; {found:,} look suspicious."
    return f"{found:,} of {total:,} labels look wrong."


def key_numbers(run: RunFiles) -> list[KeyNumber]:
    """Return accuracy, noise rate, label issues and time, as far as they are known."""
    numbers = []
    accuracy = test_accuracy(run.results)
    if accuracy is not None:
        numbers.append(KeyNumber("Test accuracy", f"{accuracy['top1']:.1%}", f"on {accuracy['count']:,} test examples"))
    numbers += _noise_number(run)
    total, found = len(run.issues), int(run.issues["is_label_issue"].sum())
    numbers.append(KeyNumber("Label issues", f"{found:,}", f"of {total:,} noisy labels"))
    changes = run.estimate.get("changes")
    if changes:
        promise = "promised" if changes["promised"] else "claimed, not promised"
        wrong = f", {changes['claimed_errors']:.1%} of them wrong ({promise})" if changes["changed"] else ""
        note = f"labels changed{wrong}; {changes['review']:,} left for review"
        numbers.append(KeyNumber("Cleaned", f"{changes['changed']:,}", note))
    return numbers + _sample_numbers(run)


def _sample_numbers(run: RunFiles) -> list[KeyNumber]:
    """Return what a random sample said, where one was decided."""
    if not run.sample:
        return []
    note = f"wrong, by {run.sample['sampled']:,} random rows; 95% interval {_interval(run.sample['wrong'])}"
    numbers = [KeyNumber("Verified noise rate", f"{run.sample['wrong']['value']:.1%}", note)]
    after = run.sample.get("right_after")
    if after:
        before = run.sample["right_before"]
        note = f"right after cleaning ({_interval(after)}); before {before['value']:.1%} ({_interval(before)})"
        numbers.append(KeyNumber("Verified labels", f"{after['value']:.1%}", note))
    return numbers


def _interval(share: Mapping[str, float]) -> str:
    return f"{share['low']:.1%} to {share['high']:.1%}"


def next_step(run: RunFiles, reviewed: int) -> NextStep:
    """Return what to do next: review where something is doubtful, else use the model."""
    folder = shlex.quote(str(run.folder))
    if reviewed:
        return NextStep(
            f"Review the {reviewed:,} most doubtful labels, as many as you have time for, and export decisions.csv. "
            "Then make new labels of it with the command below (give the path where the browser put the file), "
            "and train again.",
            f"karat apply {folder} decisions.csv",
        )
    return NextStep("No label needs a second look: use the model on new data.", f"karat predict {folder} DATA")


def warnings(run: RunFiles) -> list[str]:
    """Return what the reader should worry about, as the audit wrote it down."""
    return [str(text) for text in run.estimate.get("warnings") or ()]


def settings(run: RunFiles) -> list[tuple[str, str]]:
    """Return the settings that count in this run, with dotted names; those of other methods do not."""
    method = run.config.get("method")
    own = {name: value for name, value in (run.config.get("methods") or {}).items() if name == method}
    rows = _flat({**run.config, "methods": own})
    return [(name, "–" if value is None else str(value)) for name, value in rows]


def cost(run: RunFiles) -> list[tuple[str, str]]:
    """Return time, memory and machine."""
    rows = []
    seconds, steps = run.results.get("seconds"), run.metrics[-1].get("step") if run.metrics else None
    if isinstance(seconds, (int, float)):
        rows.append(("Training time", duration(seconds)))
        if steps:
            rows.append(("Steps", f"{steps:,}, {1000 * seconds / steps:,.0f} ms each"))
    memory = run.results.get("peak_memory")
    if isinstance(memory, (int, float)):
        rows.append(("Peak memory of the process", f"{memory / 2**20:,.0f} MiB"))
    memory = run.results.get("peak_device_memory")
    if isinstance(memory, (int, float)):
        rows.append(("Peak memory of the device", f"{memory / 2**20:,.0f} MiB"))
    return rows + [(name.capitalize(), str(value)) for name, value in run.environment.items()]


def duration(seconds: float) -> str:
    """Write a time span.

    >>> duration(9.5), duration(754), duration(7260)
    ('9.5 s', '12 min 34 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def test_accuracy(results: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the accuracy of the selected model; None where there is no test."""
    accuracy = results.get("selected")
    known = isinstance(accuracy, Mapping) and accuracy.get("count") and accuracy.get("top1") is not None
    return accuracy if known else None


def _noise_number(run: RunFiles) -> list[KeyNumber]:
    estimate, true = run.estimate, run.results.get("noise_rate")
    if isinstance(estimate.get("rate"), (int, float)):
        note = "estimated"
        if estimate.get("low") is not None and estimate.get("high") is not None:
            level = estimate.get("level") or 0.95
            note = f"estimated; {level:.0%} interval {estimate['low']:.1%} to {estimate['high']:.1%}"
        if isinstance(true, (int, float)):
            note += f"; really {true:.1%}"
        return [KeyNumber("Noise rate", f"{estimate['rate']:.1%}", note)]
    if isinstance(true, (int, float)):
        return [KeyNumber("Noise rate", f"{true:.1%}", "known, because the noise was drawn")]
    return []


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        dotted = f"{prefix}{name}"
        rows += _flat(value, f"{dotted}.") if isinstance(value, Mapping) else [(dotted, value)]
    return rows
