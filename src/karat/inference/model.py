"""The trained model of a run, built again from its folder alone: neither training data nor config are needed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from karat.data.images import Inputs
from karat.data.schema import Schema
from karat.data.text import FILE as TEXT_FILE
from karat.data.text import load_text_encoder
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint
from karat.files.checksums import refuse_changed
from karat.files.json_files import read_json
from karat.files.required import fitting
from karat.files.weights import load_weights, stored_tensors
from karat.inference.device import compute_device
from karat.inference.evaluation import predict_probabilities
from karat.methods.shared.ensemble import Ensemble
from karat.methods.shared.forest import with_trees_of
from karat.models import PRETRAINED, build_model
from karat.models.average import WeightAverage
from karat.models.pretrained import Pretrained, build_pretrained
from karat.models.views import with_views

FORMAT = "karat model 1"
MOST_NETWORKS = 100  # of one model: methods train two or three at once


@dataclass(frozen=True, eq=False)
class ModelDescription:
    """What a model needs to be built again and to read new data: its classes, the network's name, how many of them."""

    classes: tuple[str, ...]
    model: str
    networks: int
    input_shape: tuple[int, ...]
    schema: Schema | None
    views: str = "plain"
    pretrained: Pretrained | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for schema.json."""
        return {
            "format": FORMAT,
            "classes": list(self.classes),
            "model": self.model,
            "networks": self.networks,
            "input_shape": list(self.input_shape),
            "views": self.views,
            "pretrained": None if self.pretrained is None else self.pretrained.to_dict(),
            "schema": None if self.schema is None else self.schema.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], folder: Path) -> "ModelDescription":
        """Return what `to_dict` wrote; an encoder of texts has files of its own in the folder."""
        encoder = (values["schema"] or {}).get("encoder")
        loaded = None if encoder is None else load_text_encoder(encoder, folder)
        schema = None if values["schema"] is None else Schema.from_dict(values["schema"], loaded)
        classes, shape = tuple(map(str, values["classes"])), tuple(map(int, values["input_shape"]))
        pretrained = None if values.get("pretrained") is None else Pretrained.from_dict(values["pretrained"])
        views = values.get("views", "plain")
        return cls(classes, values["model"], values["networks"], shape, schema, views, pretrained)

    def build(self) -> nn.Module:
        """Build the network, with any weights."""
        networks = [with_views(self._network(), self.views) for _ in range(self.networks)]
        return networks[0] if len(networks) == 1 else Ensemble(*networks)

    def _network(self) -> nn.Module:
        if self.pretrained is not None:
            return build_pretrained(self.pretrained, len(self.classes))
        return build_model(self.model, self.input_shape, len(self.classes), fetch=False)


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

    def _inputs(self, inputs: Any) -> Inputs:
        if not isinstance(inputs, Tensor):
            if self.schema is None:
                raise UserError("This model does not know how its inputs were scaled: give a tensor of scaled inputs.")
            inputs = self.schema.inputs_of(inputs)
        if tuple(inputs.shape[1:]) != self.shape:
            raise UserError(
                f"The model was trained on inputs of shape {self.shape}, and these have {tuple(inputs.shape[1:])}: "
                "bring them to the same shape."
            )
        return inputs.float() if isinstance(inputs, Tensor) else inputs


def load_model(run: str | Path, device: str = "auto") -> TrainedModel:
    """Load the model of a run folder; an unfinished run has the average of its weights at the last checkpoint."""
    folder = Path(run)
    path, weights, checkpoint = (folder / name for name in ("schema.json", "model.safetensors", "checkpoint.pt"))
    refuse_changed(folder, path.name, weights.name, TEXT_FILE)
    values = _described(path)
    with fitting(path):
        described = ModelDescription.from_dict(values, folder)
        _refuse_huge(described, weights if weights.exists() else checkpoint)
        module = described.build()
    step = None
    if weights.exists():
        with fitting(weights):
            module = with_trees_of(stored_tensors(weights), module, math.prod(described.input_shape))
        load_weights(weights, module)
    elif checkpoint.exists() and described.pretrained is not None:
        raise UserError(f"The run in {folder} is not finished: go on with karat train --run {folder} --resume.")
    elif checkpoint.exists():
        with fitting(checkpoint):
            trainer = load_checkpoint(checkpoint)["trainer"]
            average = WeightAverage(module, 0.0)
            average.load_state_dict(trainer["kept"]["averaged"])
            module, step = average.module, int(trainer["steps_done"])
    else:
        raise UserError(f"The run in {folder} has no model yet: let it take its first steps.")
    module = module.eval().requires_grad_(False)
    with fitting(weights if step is None else checkpoint):
        if module(torch.zeros(1, *described.input_shape)).shape != (1, len(described.classes)):
            raise ValueError("it is the model of other classes")
    module = module.to(compute_device(device))
    return TrainedModel(module, described.classes, described.input_shape, described.schema, step)


def _refuse_huge(described: ModelDescription, weights: Path) -> None:
    """Refuse a description of a network that is much larger than its weights, before it fills the memory."""
    if not 1 <= described.networks <= MOST_NETWORKS:
        raise ValueError(f"{described.networks} networks")
    with torch.device("meta"):
        try:
            one = build_model(described.model.removesuffix(PRETRAINED), described.input_shape, len(described.classes))
        except UserError:
            raise
        except Exception:  # a network of timm that looks at numbers while it is built; its size is its name's
            return
    numbers = described.networks * sum(tensor.numel() for tensor in one.state_dict().values())
    if weights.exists() and numbers > weights.stat().st_size:  # a number has two bytes at least
        raise ValueError(f"a network of {numbers:,} numbers, which {weights.name} does not hold")


def _described(path: Path) -> dict[str, Any]:
    """Read schema.json."""
    if not path.exists():
        if path.with_name("config.yaml").exists():
            raise UserError(f"{path} is missing, an older version made this run: train again.")
        raise UserError(f"There is no run in {path.parent}: schema.json is missing, check the folder.")
    values = read_json(path)
    if values.get("format") != FORMAT:
        raise UserError(f"{path} is not the description of a model of this version of Karat: train again.")
    return values
