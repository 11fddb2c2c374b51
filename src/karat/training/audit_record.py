"""What a run hands over to its audit."""

import torch

from karat.audit.record import AuditRecord, LabelledRows, verified_sample
from karat.inference.evaluation import predict_probabilities
from karat.methods.method import Finished
from karat.training.trainer import Trainer


def audit_record(trainer: Trainer, finished: Finished) -> AuditRecord:
    """Return what the audit reads; the model predicts test examples, where there are some, and rows never seen.

    The ledger takes over the method's own judgement, where there is one.
    """
    task, test = trainer.task, trainer.task.dataset.test
    model, judgement = finished
    sample = test.subset(verified_sample(len(test)))
    if judgement is not None:
        trainer.ledger.fill(torch.arange(len(task.noisy)), judgement.probabilities)
    unseen = (trainer.ledger.times_seen == 0).nonzero().squeeze(1)
    if judgement is None and len(unseen):  # by methods that learn from some rows only, or from none
        trainer.ledger.fill(unseen, predict_probabilities(model, task.noisy.subset(unseen).inputs))
    return AuditRecord(
        task.dataset.classes,
        LabelledRows(task.names, task.noisy_rows, task.noisy.labels),
        trainer.ledger,
        LabelledRows(task.trusted_names, task.trusted_rows, task.trusted.labels),
        trainer.trusted_ledger,
        predict_probabilities(model, sample.inputs) if len(sample) else torch.zeros(0, trainer.classes),
        sample.labels,
        trainer.config.method,
        None if judgement is None else judgement.transition,
        None if judgement is None else judgement.posterior,
        None if judgement is None else judgement.rates,
        1.0 if judgement is None else judgement.caution,
    )
