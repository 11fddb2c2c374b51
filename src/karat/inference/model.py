"""A trained model on new data: built again from its run folder alone, neither training data nor config are needed."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from karat.data.schema import Schema
from karat.data.sources.new_data import NewData, read_new_data
from karat.errors import UserError
from karat.files.safe_csv import write_safe_csv
from karat.inference.evaluation import Evaluation, evaluate_probabilities, predict_probabilities
from karat.methods.shared.ensemble import Ensemble
from karat.models import build_model
from karat.progress_bar import ProgressBar
from karat.training.average import WeightAverage
from karat.training.build import make_fabric
from karat.training.checkpoints import load_checkpoint, load_weights
from karat.training.run_folder import DESCRIPTION

logger = logging.getLogger("karat")


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """The model of a run, with the names of its classes and how new data become its inputs.

    `step` is the step of an unfinished run after which the weights were taken, None for a finished one.
    """

    module: nn.Module
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    schema: Schema | None = None
    step: int | None = None

    def predict_proba(self, inputs: Any) -> NDArray[np.float32]:
        """Return the probability of each class for each input, in the order of `classes`.

        Arrays and frames are taken as the training data were: features in their own units, images as uint8 or floats. A
        tensor is taken as the network takes it: float32, standardised, or images N,C,H,W in [-1, 1].
        """
        found = predict_probabilities(self.module, self._inputs(inputs))
        return found.numpy()

    def predict(self, inputs: Any) -> list[str]:
        """Return the name of the most probable class for each input."""
        return [self.classes[place] for place in self.predict_proba(inputs).argmax(axis=1)]

    def _inputs(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, Tensor):
            if self.schema is None:
                raise UserError("This model does not know how its inputs were scaled: give a tensor of scaled inputs.")
            inputs = self.schema.inputs_of(inputs)
        if tuple(inputs.shape[1:]) != self.shape:
            raise UserError(
                f"The model was trained on inputs of shape {self.shape}, and these have {tuple(inputs.shape[1:])}: "
                "bring them to the same shape."
            )
        return inputs.float()


def load_model(run: str | Path, device: str = "auto") -> TrainedModel:
    """Load the model of a run folder; an unfinished run has the average of its weights at the last checkpoint."""
    folder = Path(run)
    values = _description(folder)
    try:
        classes, shape = tuple(map(str, values["classes"])), tuple(map(int, values["input_shape"]))
        schema = None if values["schema"] is None else Schema.from_dict(values["schema"])
        networks = [build_model(values["model"], shape, len(classes), fetch=False) for _ in range(values["networks"])]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / 'schema.json'} is damaged ({error!r} is missing or wrong): train again.") from error
    module = networks[0] if len(networks) == 1 else Ensemble(*networks)
    weights, checkpoint = folder / "model.safetensors", folder / "checkpoint.pt"
    step = None
    if weights.exists():
        load_weights(weights, module)
    elif checkpoint.exists():
        trainer = load_checkpoint(checkpoint)["trainer"]
        average = WeightAverage(module, 0.0)
        average.load_state_dict(trainer["average"])
        module, step = average.module, int(trainer["steps_done"])
    else:
        raise UserError(f"The run in {folder} has no model yet: let it take its first steps.")
    module = make_fabric(device).to_device(module.eval().requires_grad_(False))
    return TrainedModel(module, classes, shape, schema, step)


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


def _description(folder: Path) -> dict[str, Any]:
    path = folder / "schema.json"
    if not path.exists():
        if (folder / "config.yaml").exists():
            raise UserError(f"{path} is missing, an older version made this run: train again.")
        raise UserError(f"There is no run in {folder}: schema.json is missing, check the folder.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): train again.") from error
    if not isinstance(values, dict) or values.get("format") != DESCRIPTION:
        raise UserError(f"{path} is not the description of a model of this version of Karat: train again.")
    return values
