"""The labels to train on next: what was kept, changed, dropped."""

import numpy as np
import pandas as pd
import torch

from karat.audit.beliefs import Beliefs
from karat.audit.record import AuditRecord

CONFIDENT = 0.8  # a suggestion at least so likely replaces the given label


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
