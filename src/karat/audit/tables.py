"""The two tables of an audit: which given labels are probably wrong, and the labels to train on next."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from karat.audit.beliefs import Beliefs
from karat.audit.record import AuditRecord

CONFIDENT = 0.8  # a suggestion at least so likely replaces the given label


def label_issues(record: AuditRecord, believed: Beliefs) -> pd.DataFrame:
    """Return one row for each noisy example, the most suspicious first, in cleanlab's column names.

    `label_quality` is the probability that the given label is right; below one half it is an issue, and the likeliest
    other class is suggested. `predicted_label` is what the network says without a look at the given label.
    """
    ledger, classes = record.ledger, np.array([*record.classes, ""], dtype=object)  # -1: none
    issue = believed.quality < 0.5
    table = pd.DataFrame(
        {
            "id": np.array([*record.noisy.names, None], dtype=object)[:-1],
            "index": record.noisy.index.numpy(),
            "given_label": classes[record.noisy.labels.numpy()],
            "predicted_label": classes[believed.predicted.numpy()],
            "is_label_issue": issue.numpy(),
            "label_quality": np.round(believed.quality.numpy(), 12),  # near 1 it still ranks
            "suggested_label": classes[believed.other.where(issue, -1).numpy()],
            "suggestion_confidence": _rounded(believed.confidence.where(issue, np.nan)),
            "mean_weight": _rounded(ledger.mean_weight),
            "mean_label_trust": _rounded(ledger.mean_label_trust),
            "helpful_label": classes[ledger.helpful_class.numpy()],
            "mean_loss": _rounded(ledger.mean_loss),
            "times_seen": ledger.times_seen.numpy(),
        }
    )
    order = np.argsort(believed.quality.numpy(), kind="stable")  # before rounding, which makes ties
    return table.iloc[order].reset_index(drop=True)


def cleaned_labels(record: AuditRecord, believed: Beliefs) -> pd.DataFrame:
    """Return one row for each train example, in the order of the data.

    `action`: "changed" where the given label is an issue and the suggestion is confident, "dropped" where it is an
    issue and none is, "kept" otherwise, and "trusted". `confidence` is that of the cleaned label; where it was dropped,
    that of the best suggestion.
    """
    classes = np.array([*record.classes, ""], dtype=object)  # -1: none
    issue = believed.quality < 0.5
    changed = issue & (believed.confidence >= CONFIDENT)
    dropped = issue & ~changed
    given = record.noisy.labels
    cleaned = torch.where(changed, believed.other, given).where(~dropped, -1)
    confidence = torch.where(issue, believed.confidence, believed.quality)
    action = np.select([changed.numpy(), dropped.numpy()], ["changed", "dropped"], "kept")
    trusted = record.trusted
    labels = np.concatenate([given.numpy(), trusted.labels.numpy()])
    table = pd.DataFrame(
        {
            "id": np.array([*record.noisy.names, *trusted.names, None], dtype=object)[:-1],
            "index": np.concatenate([record.noisy.index.numpy(), trusted.index.numpy()]),
            "given_label": classes[labels],
            "cleaned_label": classes[np.concatenate([cleaned.numpy(), trusted.labels.numpy()])],
            "action": np.concatenate([action, np.full(len(trusted), "trusted")]).astype(object),
            "confidence": np.round(np.concatenate([confidence.double().numpy(), np.ones(len(trusted))]), 6),
        }
    )
    return table.sort_values("index", kind="stable", ignore_index=True)


def _rounded(values: Tensor) -> "np.ndarray":
    """Return so many digits as anybody reads: a file of half the size."""
    return np.round(values.double().numpy(), 6)
