"""From the rows of a source to a dataset: everything is checked, and all that is wrong is said together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from karat.data.examples import Dataset, Examples, Skipped
from karat.data.features import encode, fit_columns
from karat.data.images import ImageFiles, Inputs, take
from karat.data.readers import Array
from karat.data.schema import Schema
from karat.data.settings import DataSettings
from karat.data.sources.checks import check_classes, check_duplicates, check_ids, feature_keys
from karat.data.sources.image_check import check_images
from karat.data.sources.image_shapes import choose_shape
from karat.data.sources.problems import Problems, counted
from karat.data.sources.rows import TEST, TRUSTED, Rows
from karat.data.trusted import limited_rows
from karat.errors import UserError

_QUICKLY_CHECKED = 20_000  # so many images are decoded even where something else is wrong already


def assemble(rows: Rows, data: DataSettings, seed: int = 0) -> Dataset:
    """Check the rows and make a dataset of them; `data.limit` is applied before images are looked at."""
    problems = Problems(rows.source)
    problems.notes += rows.notes
    classes = check_classes(rows, problems)
    check_ids(rows, problems)
    if data.limit is not None:
        problems.stop()  # which rows are kept depends on the labels
        rows = rows.subset(_limit(rows, classes, data.limit, seed))
    inputs: Inputs
    skipped: tuple[Skipped, ...] = ()
    if rows.images is None:
        inputs, schema = _features(rows, data, problems)
    else:
        rows, inputs, schema, skipped = _images(rows, data, problems)
        if skipped:  # a class may have lost all its examples
            classes = check_classes(rows, problems)
            problems.errors, problems.warnings = (
                [*dict.fromkeys(said)] for said in (problems.errors, problems.warnings)
            )
        problems.stop()
    name = Path(data.name).resolve().name.split(".")[0] or "data"
    dataset = _dataset(name, rows, inputs, schema, classes, skipped, problems)
    chosen = schema.images and schema.shape[1] == schema.shape[2] and data.image_size is None
    return replace(dataset, image_size=schema.shape[1] if chosen else None)


def _images(rows: Rows, data: DataSettings, problems: Problems) -> tuple[Rows, ImageFiles, Schema, tuple[Skipped, ...]]:
    """Decode all images once; return the rows and inputs without those that are skipped."""
    assert rows.images is not None
    if len(rows) > _QUICKLY_CHECKED:
        problems.stop()
    channels, height, width = choose_shape(rows.images, data.image_size, problems.notes)
    inputs = ImageFiles(rows.images, (height, width), channels=channels)
    bad, digests = check_images(inputs, rows.name)
    kept = np.array([row for row in range(len(rows)) if row not in bad], dtype=np.int64)
    if bad and data.on_bad_image == "skip":
        problems.warnings.append(f"{counted(len(bad), 'image')} cannot be read: training goes on without.")
    else:
        problems.bad_images = tuple(bad.values())
    rows, inputs = rows.subset(kept), inputs.subset(torch.from_numpy(kept))
    check_duplicates(rows, [digests[row] for row in kept], True, problems)
    schema = Schema(
        (channels, height, width),
        label_column=data.label_column,
        path_column=rows.path_column or "path",
        id_column=data.id_column,
    )
    return rows, inputs, schema, () if problems.bad_images else tuple(bad.values())


def _features(rows: Rows, data: DataSettings, problems: Problems) -> tuple[Inputs, Schema]:
    assert rows.features is not None
    columns = fit_columns(rows.features[rows.parts != TEST], data.missing, problems.errors, problems.notes)
    check_duplicates(rows, feature_keys(rows.features), False, problems)
    problems.stop()
    try:
        inputs = encode(columns, rows.features)
    except UserError as error:
        raise UserError(f"{problems.source}, test rows: {error}") from error
    schema = Schema(tuple(inputs.shape[1:]), columns, label_column=data.label_column, id_column=data.id_column)
    return inputs, schema


def _dataset(
    name: str,
    rows: Rows,
    inputs: Inputs,
    schema: Schema,
    classes: tuple[str, ...],
    skipped: tuple[Skipped, ...],
    problems: Problems,
) -> Dataset:
    numbers = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([numbers[label] for label in rows.labels], dtype=torch.int64)
    train, test = (torch.from_numpy(np.flatnonzero(chosen)) for chosen in (rows.parts != TEST, rows.parts == TEST))

    names = None if rows.names is None else _different(rows)

    def names_of(indices: torch.Tensor) -> tuple[str, ...] | None:
        return None if names is None else tuple(names[row] for row in indices.tolist())

    return Dataset(
        name,
        Examples(take(inputs, train), labels[train]),
        Examples(take(inputs, test), labels[test]),
        classes,
        flip=False,  # nobody said that a mirrored image means the same; augmentation.flip can say so
        rows=torch.from_numpy(rows.places[train.numpy()]),
        curated=False,
        trusted=torch.from_numpy(rows.parts[train.numpy()] == TRUSTED),
        names=names_of(train),
        test_names=names_of(test),
        schema=schema,
        skipped=skipped,
        notes=(*problems.warnings, *problems.notes),
    )


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
    kept = limited_rows(labels, torch.from_numpy(rows.parts[train] == TRUSTED), len(classes), limit, seed)
    return np.sort(np.concatenate([train[kept.numpy()], np.flatnonzero(rows.parts == TEST)]))
