"""The files of an audit, written from ledger.safetensors alone: no example is decoded again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from karat.audit.beliefs import Beliefs, Calibration, beliefs, calibrate
from karat.audit.estimate import Changes, NoiseEstimate, estimate_noise, save_estimate
from karat.audit.record import AuditRecord, load_record
from karat.audit.reliability import Reliability, reliability, save_reliability, true_labels
from karat.audit.settings import AuditSettings
from karat.audit.suggest import Looks, suggestions
from karat.audit.tables import Cleaning, clean, cleaned_labels, label_issues
from karat.audit.warnings_list import warnings_of
from karat.files.atomic import replacing
from karat.files.json_files import read_json
from karat.files.metrics_log import read_metrics
from karat.files.required import fitting
from karat.files.safe_csv import write_safe_csv

DEFAULTS = AuditSettings()


@dataclass(frozen=True, eq=False)
class Audit:
    """What the ledger says: how to read predictions, what to believe, and the tables and the estimate from that."""

    calibration: Calibration
    beliefs: Beliefs
    issues: pd.DataFrame
    cleaned: pd.DataFrame
    estimate: NoiseEstimate
    reliability: Reliability | None = None


def believe(record: AuditRecord) -> tuple[Calibration, Beliefs]:
    """Calibrate the predictions of a record; return that and what to believe about each noisy example.

    Where the method brings its own, nothing is fitted.
    """
    probabilities, given = record.ledger.probabilities, record.noisy.labels
    if record.transition is not None:
        calibration = Calibration(1.0, record.transition.double())
    else:
        trusted = record.trusted_ledger.probabilities
        calibration = calibrate(probabilities, given, trusted, record.trusted.labels)
    return calibration, beliefs(calibration, probabilities, given, record.posterior, record.caution)


def audit(
    record: AuditRecord,
    metrics: Sequence[Mapping[str, Any]] = (),
    settings: AuditSettings = DEFAULTS,
    true: Tensor | None = None,
) -> Audit:
    """Calibrate the predictions of a record and read everything off them.

    The metrics are for the warnings; the true labels, where they are known, say how reliable all of it is.
    """
    calibration, believed = believe(record)
    estimate = estimate_noise(record, calibration, believed)
    cleaning = clean(believed, settings.error_rate)
    warnings = tuple(warnings_of(record, believed, estimate, metrics))
    return Audit(
        calibration,
        believed,
        label_issues(record, believed),
        cleaned_labels(record, believed, cleaning),
        replace(estimate, warnings=warnings, changes=_changes(record, believed, cleaning, settings)),
        None
        if true is None
        else reliability(believed.quality, record.noisy.labels == true, (believed.other == true)[cleaning.changed]),
    )


def _changes(record: AuditRecord, believed: Beliefs, cleaning: Cleaning, settings: AuditSettings) -> Changes:
    changed = int(cleaning.changed.sum())
    claimed = (1 - believed.confidence[cleaning.changed].double()).mean().item() if changed else 0.0
    return Changes(settings.error_rate, changed, claimed, int(cleaning.review.sum()), record.posterior is not None)


def write_audit(folder: Path, settings: AuditSettings = DEFAULTS) -> Audit:
    """Write label_issues.csv, cleaned_labels.csv and noise_estimate.json of a run from its ledger.

    Where noisy_labels.csv holds the truth, too, reliability.json says how well all of it fits.
    """
    record = load_record(folder / "ledger.safetensors")
    metrics = read_metrics(folder / "metrics.jsonl", damaged="skip")
    found = audit(record, metrics, settings, true_labels(folder / "noisy_labels.csv", record))
    write_safe_csv(found.issues, folder / "label_issues.csv")
    write_safe_csv(found.cleaned, folder / "cleaned_labels.csv")
    save_estimate(found.estimate, folder / "noise_estimate.json")
    (folder / "reliability.json").unlink(missing_ok=True)
    if found.reliability is not None:
        save_reliability(found.reliability, folder / "reliability.json")
    return found


def settings_used(folder: Path) -> AuditSettings:
    """Return the settings with which the files of a run's audit were written last."""
    path = folder / "noise_estimate.json"
    changes = read_json(path, f"write it again with `karat audit {folder}`").get("changes") if path.exists() else None
    with fitting(path, f"write it again with `karat audit {folder}`"):
        return AuditSettings(float(changes["error_rate"])) if changes else DEFAULTS


def suggest_rows(
    folder: Path, count: int, look: Callable[[AuditRecord], Looks] | None = None
) -> tuple[Path, pd.DataFrame]:
    """Write suggestions.csv of a run: the rows to verify next; `look` at them where nothing is verified yet."""
    record = load_record(folder / "ledger.safetensors")
    looks = None if look is None or len(record.trusted) else look(record)
    rows = suggestions(record, believe(record)[1], count, looks)
    path = folder / "suggestions.csv"
    write_safe_csv(rows, path)
    return path, rows


def write_pred_probs(folder: Path, path: Path) -> None:
    """Write the remembered predictions of the noisy examples, in the order of their index, as cleanlab takes them."""
    record = load_record(folder / "ledger.safetensors")
    ordered = record.ledger.probabilities[record.noisy.index.argsort()].double()
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, (ordered / ordered.sum(dim=1, keepdim=True)).numpy(), allow_pickle=False)
