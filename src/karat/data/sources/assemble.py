"""From the rows of a source to a dataset: everything is checked, and all that is wrong is said together."""

from dataclasses import replace

import numpy as np
import torch

from karat.data.examples import Dataset, Examples, Skipped
from karat.data.images import ImageFiles, Inputs, take
from karat.data.readers import Array
from karat.data.settings import DataSettings
from karat.data.sources.checks import check_classes, check_duplicates, check_ids
from karat.data.sources.problems import Problems, counted
from karat.data.sources.rows import TEST, TRUSTED, Rows
from karat.data.trusted import limited_rows
from karat.errors import UserError


def assemble(rows: Rows, data: DataSettings, seed: int = 0) -> Dataset:
    """Check the rows and make a dataset of them; `data.limit` is applied before images are looked at."""
    skip = data.on_bad_image == "skip"
    problems = Problems(rows.source, "file" if rows.bad else rows.content.noun, () if skip else rows.bad)
    problems.notes += rows.notes
    classes = check_classes(rows, problems)
    check_ids(rows, problems)
    if data.limit is not None:
        problems.stop()  # which rows are kept depends on the labels
        rows = rows.subset(_limit(rows, classes, data.limit, seed))
    schema = rows.content.fit(rows.parts != TEST, data, rows.remedies, problems)
    looked = rows.content.look(schema)
    bad = (*rows.bad, *(Skipped(rows.name(row), reason) for row, reason in looked.unreadable.items()))
    kept = np.setdiff1d(np.arange(len(rows)), list(looked.unreadable))
    if bad:
        rows = rows.subset(kept)
    if bad and skip:
        problems.warnings.append(f"{counted(len(bad), problems.noun)} cannot be read: training goes on without.")
        classes = check_classes(rows, problems)  # a class may have lost all its examples
        problems.errors, problems.warnings = ([*dict.fromkeys(said)] for said in (problems.errors, problems.warnings))
    else:
        problems.bad_images = bad
    keys = looked.keys()
    check_duplicates(rows, [keys[row] for row in kept], problems)
    problems.stop()
    try:
        inputs = looked.inputs()
    except UserError as error:  # what was learned from the train rows suits them
        raise UserError(f"{problems.source}, test rows: {error}") from error
    if bad:
        inputs = take(inputs, torch.from_numpy(kept))
    schema = replace(
        schema,
        label_column=data.label_column,
        path_column=rows.path_column or schema.path_column,
        text_column=rows.text_column or schema.text_column,
        id_column=data.id_column,
    )
    chosen = isinstance(inputs, ImageFiles) and data.image_size is None and schema.shape[1] == schema.shape[2]
    return replace(
        _dataset(data.title, rows, inputs, classes),
        schema=schema,
        skipped=bad,
        notes=(*problems.warnings, *problems.notes),
        image_size=schema.shape[1] if chosen else None,
    )


def _dataset(name: str, rows: Rows, inputs: Inputs, classes: tuple[str, ...]) -> Dataset:
    numbers = {label: number for number, label in enumerate(classes)}
    labels = torch.tensor([numbers[label] for label in rows.labels], dtype=torch.int64)
    train, test = (torch.from_numpy(np.flatnonzero(chosen)) for chosen in (rows.parts != TEST, rows.parts == TEST))
    names = None if rows.names is None else _different(rows)

    def names_of(indices: torch.Tensor) -> tuple[str, ...] | None:
        return None if names is None else tuple(names[row] for row in indices.tolist())

    return Dataset(
        name,
        Examples(_part(inputs, train), labels[train]),
        Examples(_part(inputs, test), labels[test]),
        classes,
        flip=False,  # nobody said that a mirrored image means the same; augmentation.flip can say so
        rows=torch.from_numpy(rows.places[train.numpy()]),
        curated=False,
        trusted=_trusted(rows, train.numpy()),
        names=names_of(train),
        test_names=names_of(test),
        cells=rows.content.cells(rows.places),
    )


def _trusted(rows: Rows, train: Array) -> torch.Tensor | None:
    """Return which of the train rows are trusted; None where no row is."""
    trusted = rows.parts[train] == TRUSTED
    return torch.from_numpy(trusted) if trusted.any() else None


def _part(inputs: Inputs, indices: torch.Tensor) -> Inputs:
    """Return the inputs at these indices, without a copy where they follow each other."""
    if len(indices) and int(indices[-1] - indices[0]) == len(indices) - 1:
        return take(inputs, slice(int(indices[0]), int(indices[-1]) + 1))
    return take(inputs, indices)


def _different(rows: Rows) -> list[str]:
    """Return the names of the rows; a name that came before gets its row behind it."""
    seen: set[str] = set()
    names = []
    for name, place in zip(rows.names or (), rows.places.tolist(), strict=True):
        names.append(f"{name} (row {place})" if name in seen else name)
        seen.add(name)
    return names


def _limit(rows: Rows, classes: tuple[str, ...], limit: int, seed: int) -> Array:
    """Return the rows that a limit on the train rows keeps, and all test rows."""
    numbers = {name: number for number, name in enumerate(classes)}
    train = np.flatnonzero(rows.parts != TEST)
    labels = torch.tensor([numbers[rows.labels[row]] for row in train.tolist()])
    kept = limited_rows(labels, _trusted(rows, train), len(classes), limit, seed)
    return np.sort(np.concatenate([train[kept.numpy()], np.flatnonzero(rows.parts == TEST)]))
