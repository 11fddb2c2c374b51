"""Records of made-up runs in which everything is known: true labels, noise, and how often the network errs."""

import torch

from karat.audit.ledger import Ledger
from karat.audit.record import AuditRecord, LabelledRows


def made_up(
    transition,
    examples=2000,
    trusted=100,
    test=500,
    error=0.03,
    confidence=0.8,
    seed=0,
    names=None,
    classes=None,
):
    """Return a record and its true labels.

    The network errs on a share of all examples, whatever their labels, and is equally confident when it does: it gives
    the class that it predicts `confidence` and spreads the rest evenly.
    """
    transition = torch.as_tensor(transition, dtype=torch.float64)
    count, generator = len(transition), torch.Generator().manual_seed(1000 + seed)
    true = torch.randint(count, (examples,), generator=generator)
    given = torch.multinomial(transition[true], 1, generator=generator).squeeze(1)
    trusted_labels = torch.arange(trusted) % count
    test_labels = torch.randint(count, (test,), generator=generator)

    def predictions(labels):
        errs = torch.rand(len(labels), generator=generator) < error
        shift = torch.randint(1, count, (len(labels),), generator=generator)
        predicted = torch.where(errs, (labels + shift) % count, labels)
        jitter = 0.1 * torch.rand(len(labels), 1, generator=generator)
        p = torch.full((len(labels), count), (1 - confidence) / (count - 1)).scatter(1, predicted[:, None], confidence)
        return (p + jitter) / (p + jitter).sum(dim=1, keepdim=True)

    noisy_ledger, trusted_ledger = Ledger(examples, count), Ledger(trusted, count)
    noisy_ledger.predict(predictions(true), given)
    trusted_ledger.predict(predictions(trusted_labels), trusted_labels)
    names = tuple(f"row {row}" for row in range(examples + trusted)) if names is None else tuple(names)
    record = AuditRecord(
        classes or tuple(f"class {number}" for number in range(count)),
        LabelledRows(names[:examples], torch.arange(examples), given),
        noisy_ledger,
        LabelledRows(names[examples:], torch.arange(examples, examples + trusted), trusted_labels),
        trusted_ledger,
        predictions(test_labels) if test else torch.zeros(0, count),
        test_labels,
    )
    return record, true


def uniform(classes, rate):
    """Redraw a share of the labels from all classes."""
    return (1 - rate) * torch.eye(classes, dtype=torch.float64) + rate / classes


def next_class(classes, rate):
    """Turn a share of each class into the next one."""
    identity = torch.eye(classes, dtype=torch.float64)
    return (1 - rate) * identity + rate * identity.roll(1, dims=1)
