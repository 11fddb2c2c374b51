"""The two tables of an audit: which given labels are probably wrong, and the labels to train on next."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from karat.audit.beliefs import Beliefs
from karat.audit.record import AuditRecord


class Cleaning(NamedTuple):
    """Which given labels are changed, and which are left for a person to look at."""

    changed: Tensor
    review: Tensor


def clean(believed: Beliefs, error_rate: float) -> Cleaning:
    """Change the largest set of label issues whose mean claimed error stays within the rate, the surest first.

    With c the confidence of a suggestion the set is the longest with `mean(1 − c) ≤ rate` (the Bayesian false discovery
    rate). No suggestion that is rather wrong than right gets in with the surer ones.

    >>> p = torch.tensor([0.99, 0.97, 0.90, 0.80, 0.45])
    >>> clean(Beliefs(1 - p, torch.ones(5), p, torch.ones(5)), error_rate=0.05).changed.tolist()  # 0.01 + 0.03 + 0.10
    [True, True, True, False, False]
    """
    issue = believed.quality < 0.5
    candidates = (issue & (believed.confidence >= 0.5)).nonzero().squeeze(1)
    error = 1 - believed.confidence[candidates].double()
    order = error.argsort(stable=True)
    mean = error[order].cumsum(0) / torch.arange(1, len(order) + 1)
    changed = torch.zeros_like(issue)
    changed[candidates[order[mean <= error_rate + 1e-7]]] = True  # confidences of 32 bits
    return Cleaning(changed, issue & ~changed)


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


def cleaned_labels(record: AuditRecord, believed: Beliefs, cleaning: Cleaning) -> pd.DataFrame:
    """Return one row for each train example, in the order of the data.

    `action`: "changed" where the suggestion took the given label's place, "review" where the given label is an issue
    and no change can be promised, "kept" otherwise, and "trusted". `confidence` is that of the cleaned label; where
    there is none, that of the best suggestion.
    """
    classes = np.array([*record.classes, ""], dtype=object)  # -1: none
    given, (changed, review) = record.noisy.labels, cleaning
    cleaned = torch.where(changed, believed.other, given).where(~review, -1)
    confidence = torch.where(changed | review, believed.confidence, believed.quality)
    action = np.select([changed.numpy(), review.numpy()], ["changed", "review"], "kept")
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
