"""Which given labels are probably wrong: a ranked table read off the ledger."""

from collections.abc import Sequence

import pandas as pd
from torch import Tensor

from karat.audit.ledger import Ledger


def label_issues(ledger: Ledger, given_labels: Tensor, rows: Tensor, classes: Sequence[str]) -> pd.DataFrame:
    """Return one row for each noisy example, the most suspicious first, in cleanlab's column names.

    `label_quality` is the remembered probability of the given label; a label that is not the predicted one is an
    issue. `rows` are the places of the examples in the
    user's data.

    >>> import torch
    >>> ledger = Ledger(examples=2, classes=2)
    >>> ledger.record(torch.arange(2), torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    >>> issues = label_issues(ledger, torch.tensor([0, 0]), torch.tensor([7, 9]), ["cat", "dog"])
    >>> issues[["index", "given_label", "predicted_label", "is_label_issue", "label_quality"]]
       index given_label predicted_label  is_label_issue  label_quality
    0      9         cat             dog            True           0.25
    1      7         cat             cat           False           0.75
    """
    predicted = ledger.probabilities.argmax(dim=1)
    quality = ledger.probabilities.gather(1, given_labels[:, None]).squeeze(1)
    table = pd.DataFrame(
        {
            "index": rows.numpy(),
            "given_label": [classes[label] for label in given_labels.tolist()],
            "predicted_label": [classes[label] for label in predicted.tolist()],
            "is_label_issue": (predicted != given_labels).numpy(),
            "label_quality": quality.numpy(),
            "mean_weight": ledger.mean_weight.numpy(),
            "mean_label_trust": ledger.mean_label_trust.numpy(),
            "times_seen": ledger.times_seen.numpy(),
        }
    )
    return table.sort_values("label_quality", kind="stable", ignore_index=True)
