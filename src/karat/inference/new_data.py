"""The model of a run on new data: predictions in a table, accuracy on rows that it was not trained on."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from karat.data.schema import Schema
from karat.data.sources.new_data import NewData, read_new_data
from karat.errors import UserError
from karat.files.safe_csv import write_safe_csv
from karat.inference.evaluation import Evaluation, evaluate_probabilities, predict_probabilities
from karat.inference.model import TrainedModel, load_model
from karat.progress_bar import ProgressBar

logger = logging.getLogger("karat")


def predict_run(
    run: Path,
    data: str,
    out: Path,
    *,
    path: Path | None = None,
    probabilities: bool = False,
    on_bad_image: str = "error",
) -> int:
    """Write the predicted label of each row of new data, one line a row; return how many rows there are.

    Rows that cannot be read stand at the end, without a prediction, if `on_bad_image` is "skip".
    """
    if out.is_dir():
        raise UserError(f"{out} is a folder: write --out FILE.csv.")
    model, schema = _for_data(run)
    found = read_new_data(schema, data, path=path, on_bad_image=on_bad_image)
    write_safe_csv(prediction_table(found, _probabilities(model, found), model.classes, probabilities), out)
    return len(found.names) + len(found.skipped)


def evaluate_data(run: Path, data: str, *, path: Path | None = None, on_bad_image: str = "error") -> Evaluation:
    """Measure the model of a run on labelled rows that it was not trained on."""
    model, schema = _for_data(run)
    found = read_new_data(schema, data, model.classes, path=path, on_bad_image=on_bad_image)
    if found.skipped:
        logger.warning(
            "%d rows cannot be read and are not counted, first %s.", len(found.skipped), found.skipped[0].name
        )
    assert found.labels is not None
    return evaluate_probabilities(_probabilities(model, found), found.labels, model.classes)


def prediction_table(
    data: NewData, probabilities: Tensor, classes: Sequence[str], all_classes: bool = False
) -> pd.DataFrame:
    """Return id, predicted label and its probability, if asked the probability of each class; unread rows are empty.

    >>> from karat.data.examples import Skipped
    >>> data = NewData(torch.zeros(1, 2), ("a.png",), None, (Skipped("b.png", "it is empty"),))
    >>> prediction_table(data, torch.tensor([[0.25, 0.75]]), ["cat", "dog"])
          id predicted_label  confidence
    0  a.png             dog        0.75
    1  b.png                         NaN
    """
    best = probabilities.max(dim=1) if len(probabilities) else None
    unread = len(data.skipped)
    places = [] if best is None else best.indices.tolist()
    confidence = [] if best is None else best.values.tolist()
    table = pd.DataFrame(
        {
            "id": [*data.names, *(skipped.name for skipped in data.skipped)],
            "predicted_label": [classes[place] for place in places] + [""] * unread,
            "confidence": pd.Series([*confidence, *[float("nan")] * unread], dtype="float64").round(6),
        }
    )
    if all_classes:
        gaps = torch.full((unread, len(classes)), torch.nan)
        columns = torch.cat([probabilities.view(-1, len(classes)), gaps]).double().numpy()
        named = pd.DataFrame(columns, columns=[f"probability_{name}" for name in classes]).round(6)
        table = pd.concat([table, named], axis=1)
    return table


def _for_data(run: Path) -> tuple[TrainedModel, Schema]:
    model = load_model(run)
    if model.step is not None:
        logger.warning("The run in %s is not finished: this is its model after step %d.", run, model.step)
    if model.schema is None:
        raise UserError(f"The run in {run} does not know how its inputs were made: predict in Python with a tensor.")
    return model, model.schema


def _probabilities(model: TrainedModel, data: NewData) -> Tensor:
    if not len(data.names):
        return torch.zeros(0, len(model.classes))
    with ProgressBar("predict", len(data.names)) as progress:
        return predict_probabilities(model.module, data.inputs, report=progress.advance)
