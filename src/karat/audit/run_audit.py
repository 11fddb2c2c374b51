"""The files of an audit, written from ledger.safetensors alone: no example is decoded again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from karat.audit.beliefs import Beliefs, Calibration, beliefs, calibrate
from karat.audit.estimate import NoiseEstimate, estimate_noise, save_estimate
from karat.audit.record import AuditRecord, load_record
from karat.audit.suggest import suggestions
from karat.audit.tables import cleaned_labels, label_issues
from karat.audit.warnings_list import warnings_of
from karat.files.atomic import replacing
from karat.files.metrics_log import read_metrics
from karat.files.safe_csv import write_safe_csv


@dataclass(frozen=True, eq=False)
class Audit:
    """What the ledger says: how to read predictions, what to believe, and the tables and the estimate from that."""

    calibration: Calibration
    beliefs: Beliefs
    issues: pd.DataFrame
    cleaned: pd.DataFrame
    estimate: NoiseEstimate


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
    return calibration, beliefs(calibration, probabilities, given, record.posterior)


def audit(record: AuditRecord, metrics: Sequence[Mapping[str, Any]] = ()) -> Audit:
    """Calibrate the predictions of a record and read everything off them; the metrics are for the warnings."""
    calibration, believed = believe(record)
    estimate = estimate_noise(record, calibration, believed)
    warnings = tuple(warnings_of(record, believed, estimate, metrics))
    return Audit(
        calibration,
        believed,
        label_issues(record, believed),
        cleaned_labels(record, believed),
        replace(estimate, warnings=warnings),
    )


def write_audit(folder: Path) -> Audit:
    """Write label_issues.csv, cleaned_labels.csv and noise_estimate.json of a run from its ledger."""
    found = audit(load_record(folder / "ledger.safetensors"), read_metrics(folder / "metrics.jsonl", damaged="skip"))
    write_safe_csv(found.issues, folder / "label_issues.csv")
    write_safe_csv(found.cleaned, folder / "cleaned_labels.csv")
    save_estimate(found.estimate, folder / "noise_estimate.json")
    return found


def suggest_rows(folder: Path, count: int) -> tuple[Path, pd.DataFrame]:
    """Write suggestions.csv of a run: the rows to verify next."""
    record = load_record(folder / "ledger.safetensors")
    rows = suggestions(record, believe(record)[1], count)
    path = folder / "suggestions.csv"
    write_safe_csv(rows, path)
    return path, rows


def write_pred_probs(folder: Path, path: Path) -> None:
    """Write the remembered predictions of the noisy examples, in the order of their index, as cleanlab takes them."""
    record = load_record(folder / "ledger.safetensors")
    ordered = record.ledger.probabilities[record.noisy.index.argsort()].double()
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, (ordered / ordered.sum(dim=1, keepdim=True)).numpy(), allow_pickle=False)
