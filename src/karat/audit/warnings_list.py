"""What a reader of the results should worry about: one sentence each, with the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from karat.audit.beliefs import Beliefs
from karat.audit.estimate import NoiseEstimate, wilson
from karat.audit.record import AuditRecord

NOTHING_VERIFIED = (
    "No row is trusted: labels count as right more often than wrong in any one way, and nothing confirms what is said "
    "of them; `karat suggest` names the first rows to verify."
)
FEW_TRUSTED = 5  # of a class
FEW_EXAMPLES = 20  # of a class: fewer say nothing about its share of issues


def warnings_of(
    record: AuditRecord, believed: Beliefs, estimate: NoiseEstimate, metrics: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """Return the warnings of a run; noise_estimate.json holds them as `warnings`.

    `metrics` are the records of metrics.jsonl.
    """
    found = (
        _collapsed(metrics),
        _few_trusted(record),
        _overfitted(record),
        _classes_of_issues(record, believed),
        _unseen(record),
        "The interval of the noise rate is wide: verify a random sample, `karat sample` draws one."
        if estimate.high - estimate.low > 0.3
        else None,
    )
    return [text for text in found if text is not None]


def _collapsed(metrics: Sequence[Mapping[str, Any]]) -> str | None:
    shares = [record["collapsed_share"] for record in metrics if record.get("collapsed_share") is not None]
    late = shares[len(shares) // 2 :]
    if not late or sum(late) / len(late) <= 0.5:
        return None
    return (
        f"All weights were 0 in {sum(late) / len(late):.0%} of the later steps, so no noisy example helped the trusted "
        "ones: check the trusted labels, add more of them, or lower optimizer.rate."
    )


def _few_trusted(record: AuditRecord) -> str | None:
    counts = torch.bincount(record.trusted.labels, minlength=len(record.classes))
    if not counts.any():
        return NOTHING_VERIFIED
    few = (counts < FEW_TRUSTED).nonzero().squeeze(1)
    if not len(few):
        return None
    return (
        f"Fewer than {FEW_TRUSTED} trusted examples of {_named(record.classes, few)}: verify more of them, "
        "`karat suggest` names the rows that help most."
    )


def _overfitted(record: AuditRecord) -> str | None:
    trusted, labels = record.trusted_ledger.probabilities, record.trusted.labels
    if not len(labels) or not len(record.verified_labels):
        return None
    if record.posterior is not None:  # its judges are asked about trusted labels that they have not learned
        return None
    right = (trusted.argmax(dim=1) == labels).double().mean().item()
    test = (record.verified_probabilities.argmax(dim=1) == record.verified_labels).double().mean().item()
    if wilson(right, len(labels))[0] <= test + 0.1:
        return None
    return (
        f"The trusted set is overfitted: {right:.0%} of its labels are predicted, but {test:.0%} of those of the test. "
        "Add trusted examples, and believe the noise estimate with care."
    )


def _classes_of_issues(record: AuditRecord, believed: Beliefs) -> str | None:
    classes = len(record.classes)
    counts = torch.bincount(record.noisy.labels, minlength=classes)
    issues = torch.bincount(record.noisy.labels[believed.quality < 0.5], minlength=classes)
    most = ((issues > 0.95 * counts) & (counts >= FEW_EXAMPLES)).nonzero().squeeze(1)
    if not len(most):
        return None
    return (
        f"Nearly every label of {_named(record.classes, most)} is called wrong: check some of them by eye, and the "
        "trusted examples of that class."
    )


def _unseen(record: AuditRecord) -> str | None:
    unseen = int((record.ledger.times_seen == 0).sum())
    if not unseen:
        return None
    return (
        f"Training never looked at {unseen:,} of {len(record.noisy):,} noisy examples; they are judged by the final "
        "model alone."
    )


def _named(classes: Sequence[str], chosen: Tensor) -> str:
    names = ", ".join(f"'{classes[number]}'" for number in chosen[:5].tolist())
    return f"{names} and {len(chosen) - 5} more classes" if len(chosen) > 5 else names
