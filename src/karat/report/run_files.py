"""What a run folder holds, read for its report: a file or column that is missing is simply not shown."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from karat.errors import UserError
from karat.files.checksums import warn_of_changed
from karat.files.json_files import read_json
from karat.files.metrics_log import read_metrics
from karat.files.safe_csv import read_safe_csv
from karat.files.yaml_files import read_yaml

NUMBERS = ("label_quality", "suggestion_confidence", "mean_weight", "mean_label_trust", "mean_loss")


@dataclass(frozen=True, eq=False)
class RunFiles:
    """The files of a finished run; empty where there are none."""

    folder: Path
    config: Mapping[str, Any]
    results: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    issues: pd.DataFrame
    estimate: Mapping[str, Any]
    noise: Mapping[str, Any]
    environment: Mapping[str, Any]
    schema: Mapping[str, Any]
    plan: Mapping[str, Any]
    reliability: Mapping[str, Any]
    sample: Mapping[str, Any]
    suggested: Sequence[int] = ()

    @property
    def name(self) -> str:
        """Return the name of the folder, also where it is given as "."."""
        return self.folder.resolve().name

    @property
    def classes(self) -> list[str]:
        """Return the class names in their order, or else all labels in use, numbers by value."""
        for source in (self.estimate, self.schema):
            if isinstance(source.get("classes"), list) and source["classes"]:
                return [str(name) for name in source["classes"]]
        columns = ("given_label", "predicted_label", "suggested_label")
        found = {label for name in columns for label in self.issues[name].unique()} - {""}
        return sorted(found, key=lambda label: (0, int(label), "") if label.isdecimal() else (1, 0, label))

    @property
    def identity(self) -> str:
        """Return what tells this run from others wherever its folder lies: a hash of settings and given labels."""
        by_place = self.issues.sort_values("index")
        digest = hashlib.blake2b(json.dumps(self.config, sort_keys=True, default=str).encode(), digest_size=9)
        for column in ("index", "given_label"):
            digest.update(json.dumps(by_place[column].tolist()).encode())
        return digest.hexdigest()


def check_finished(folder: Path) -> None:
    """Refuse a folder without a run, and a run that is not finished."""
    if not (folder / "config.yaml").exists():
        raise UserError(f"There is no run in {folder}: config.yaml is missing, check the folder.")
    if not (folder / "results.json").exists():
        raise UserError(
            f"The run in {folder} is not finished, so there is nothing to report yet: "
            f"finish it with `karat train --run {folder} --resume`."
        )


_TEXTS = (
    *("config.yaml", "plan.json", "schema.json", "environment.json", "noise.json", "metrics.jsonl", "results.json"),
    "noisy_labels.csv",
)


def read_run(folder: Path) -> RunFiles:
    """Read the folder of a finished run."""
    check_finished(folder)
    warn_of_changed(folder, *_TEXTS)
    return RunFiles(
        folder,
        config=_read_yaml(folder / "config.yaml"),
        results=_read_json(folder / "results.json"),
        metrics=read_metrics(folder / "metrics.jsonl", damaged="skip"),
        issues=_read_issues(folder / "label_issues.csv"),
        estimate=_read_json(folder / "noise_estimate.json"),
        noise=_read_json(folder / "noise.json"),
        environment=_read_json(folder / "environment.json"),
        schema=_read_json(folder / "schema.json"),
        plan=_read_json(folder / "plan.json"),
        reliability=_read_json(folder / "reliability.json"),
        sample=_read_json(folder / "sample_estimate.json"),
        suggested=_read_suggested(folder / "suggestions.csv"),
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    values = read_yaml(path)
    return values if isinstance(values, dict) else {}


def _read_json(path: Path) -> dict[str, Any]:
    return read_json(path, "restore it from a copy, or delete it") if path.exists() else {}


def _read_issues(path: Path) -> pd.DataFrame:
    """Read the label issues with every column that the page uses; older runs have fewer."""
    if not path.exists():
        raise UserError(f"{path} is missing, so there are no labels to report on: run `karat audit {path.parent}`.")
    table = read_safe_csv(path)
    missing = [name for name in ("index", "given_label", "predicted_label") if name not in table]
    if missing:
        raise UserError(f"{path} has no column {', '.join(missing)}: make it again with `karat audit {path.parent}`.")
    if table["index"].isna().any():
        raise UserError(f"{path} has rows without an index: make it again with `karat audit {path.parent}`.")
    if "id" not in table:
        table["id"] = table["index"].astype(str)
    if "is_label_issue" not in table:
        table["is_label_issue"] = table["given_label"] != table["predicted_label"]
    table["is_label_issue"] = table["is_label_issue"].fillna(False).astype(bool)
    if "suggested_label" not in table:
        table["suggested_label"] = table["predicted_label"].where(table["is_label_issue"], "")
    for name in NUMBERS:
        table[name] = pd.to_numeric(table[name]).astype(float) if name in table else float("nan")
    return table


def _read_suggested(path: Path) -> list[int]:
    """Read which rows `karat suggest` named, the first to verify first."""
    table = read_safe_csv(path) if path.exists() else pd.DataFrame()
    return [int(index) for index in table["index"]] if "index" in table else []
