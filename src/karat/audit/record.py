"""Everything that the audit reads, in one file: the ledgers of a run, whose rows they are and what they are called."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from karat.audit.ledger import COLUMNS, Ledger
from karat.errors import UserError
from karat.files.checksums import refuse_changed
from karat.files.required import fitting
from karat.files.tensors import packed, read_tensors, unpacked, write_tensors

FORMAT = "karat ledger 1"
VERIFIED_LIMIT = 10_000  # test predictions that are kept; more would not make an estimate better


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Some examples of the train data: the user's names, their places in the data and the given labels."""

    names: tuple[str, ...]
    index: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class AuditRecord:
    """What training learned about the noisy and the trusted examples.

    `verified_probabilities` are the final model's predictions of test examples, `verified_labels` their labels; both
    are empty where there is no test set. `transition[true, given]` and the `posterior` of the noisy examples by their
    inputs and labels are the method's own, where it has them: then the ledger's probabilities are its own, too. `rates`
    [hypothesis, 3] are the shares of wrong labels by the hypotheses that it averaged over, their standard errors and
    their weights; `caution` is the power of the posterior by which labels are changed.
    """

    classes: tuple[str, ...]
    noisy: LabelledRows
    ledger: Ledger
    trusted: LabelledRows
    trusted_ledger: Ledger
    verified_probabilities: Tensor
    verified_labels: Tensor
    method: str = ""
    transition: Tensor | None = None
    posterior: Tensor | None = None
    rates: Tensor | None = None
    caution: float = 1.0


def save_record(record: AuditRecord, path: Path) -> None:
    """Write a record as ledger.safetensors."""
    tensors = {
        "verified.probabilities": record.verified_probabilities.half(),
        "verified.labels": record.verified_labels.long(),
        **_rows_tensors("noisy", record.noisy),
        **_rows_tensors("trusted", record.trusted),
        **{f"noisy.{name}": column for name, column in record.ledger.state_dict().items()},
        **{f"trusted.{name}": column for name, column in record.trusted_ledger.state_dict().items()},
    }
    if record.transition is not None:
        tensors["transition"] = record.transition.float()
    if record.posterior is not None:
        tensors["posterior"] = record.posterior.float()
    if record.rates is not None:
        tensors["rates"] = record.rates.float()
    tensors["caution"] = torch.tensor([record.caution])
    metadata = {"format": FORMAT, "classes": json.dumps(record.classes), "method": record.method}
    write_tensors(path, tensors, metadata)


def load_record(path: Path) -> AuditRecord:
    """Read what `save_record` wrote."""
    if not path.exists():
        raise UserError(
            f"{path} is missing: {path.parent} is not the folder of a finished run, or an older version made it. "
            "Finish the run with --resume, or train again."
        )
    refuse_changed(path.parent, path.name)
    tensors, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a ledger of this version of Karat: train again.")
    with fitting(path):
        record = _record(tensors, metadata)
        _check_sizes(record)
    return record


def _record(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> AuditRecord:
    classes = tuple(map(str, json.loads(metadata["classes"])))
    return AuditRecord(
        classes,
        _rows("noisy", tensors),
        _ledger("noisy", tensors, len(classes)),
        _rows("trusted", tensors),
        _ledger("trusted", tensors, len(classes)),
        tensors["verified.probabilities"].float(),
        tensors["verified.labels"],
        metadata.get("method", ""),
        tensors.get("transition"),
        tensors.get("posterior"),
        tensors.get("rates"),
        float(tensors["caution"]) if "caution" in tensors else 1.0,
    )


def _check_sizes(record: AuditRecord) -> None:
    """Raise a ValueError where the parts of a record do not fit together: somebody made it by other means."""
    classes = len(record.classes)
    for rows, ledger in ((record.noisy, record.ledger), (record.trusted, record.trusted_ledger)):
        count = len(rows.labels)
        sizes = {"names": (len(rows.names),), "index": tuple(rows.index.shape), "labels": tuple(rows.labels.shape)}
        sizes |= {name: tuple(getattr(ledger, name).shape[:1]) for name in COLUMNS}
        wrong = [name for name, size in sizes.items() if size != (count,)]
        wrong += [name for name, column in COLUMNS.items() if column.per_class and _width(ledger, name) != classes]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: not one for each of the {count} rows")
        _check_labels(rows.labels, classes)
        if rows.index.dtype != torch.int64 or len(rows.index.unique()) != count:
            raise ValueError("two rows have one place")
    _check_labels(record.verified_labels, classes)
    expected = {
        "verified.probabilities": (record.verified_probabilities, (len(record.verified_labels), classes)),
        "transition": (record.transition, (classes, classes)),
        "posterior": (record.posterior, (len(record.noisy), classes)),
        "rates": (record.rates, (0 if record.rates is None else len(record.rates), 3)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and (tuple(tensor.shape) != shape or not tensor.is_floating_point()):
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}")


def _width(ledger: Ledger, name: str) -> int:
    column: Tensor = getattr(ledger, name)
    return column.shape[1] if column.dim() == 2 else -1


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.dim() != 1 or labels.dtype != torch.int64 or bool(((labels < 0) | (labels >= classes)).any()):
        raise ValueError(f"labels that are none of {classes} classes")


def _rows_tensors(part: str, rows: LabelledRows) -> dict[str, Tensor]:
    names = {f"{part}.names.{name}": tensor for name, tensor in packed(rows.names).items()}
    return {f"{part}.index": rows.index.long(), f"{part}.given": rows.labels.long(), **names}


def _rows(part: str, tensors: Mapping[str, Tensor]) -> LabelledRows:
    names = {name: tensors[f"{part}.names.{name}"] for name in ("bytes", "ends")}
    texts = tuple(name.encode("utf-8", "replace").decode() for name in unpacked(names))  # bytes that are no text: ?
    return LabelledRows(texts, tensors[f"{part}.index"], tensors[f"{part}.given"])


def _ledger(part: str, tensors: Mapping[str, Tensor], classes: int) -> Ledger:
    ledger = Ledger(0, classes)
    for name in COLUMNS:  # as they are: those of a large file stay mapped to it
        setattr(ledger, name, tensors[f"{part}.{name}"])
    return ledger


def verified_sample(count: int) -> Tensor:
    """Return which of so many test examples are kept: all, or so many in even steps."""
    return torch.arange(count) if count <= VERIFIED_LIMIT else torch.linspace(0, count - 1, VERIFIED_LIMIT).long()
