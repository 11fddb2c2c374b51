"""Which given labels are probably wrong: a ranked table read off the ledger."""

import numpy as np
import pandas as pd
from torch import Tensor

from karat.audit.beliefs import Beliefs
from karat.audit.record import AuditRecord


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


def _rounded(values: Tensor) -> "np.ndarray":
    """Return so many digits as anybody reads: a file of half the size."""
    return np.round(values.double().numpy(), 6)
