"""The networks that Karat trains: the paper's, and small ones for one processor.

All are plain modules from examples to logits, chosen by name and built for the shape of the data:
`(channels, height, width)` for images, `(features,)` for vectors. Initial parameters are drawn from torch's
global generator, so `torch.manual_seed` fixes them.
"""

import math
import re

from torch import nn

from karat.errors import UserError, suggestion
from karat.models.mlp import MLP
from karat.models.resnet_v2 import ResNetV2
from karat.models.small_resnet import SmallResNet
from karat.models.wide_resnet import WideResNet

__all__ = [
    "MLP",
    "ResNetV2",
    "SmallResNet",
    "WideResNet",
    "build_model",
    "parameter_count",
]


def build_model(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the network of a name for data of a shape, `(channels, height, width)` or `(features,)`.

    `auto` is `small` for images and `mlp` for vectors; `mlp` takes images too, flattened.

    >>> parameter_count(build_model("wrn-28-2", (3, 32, 32), classes=10))
    1467610
    >>> build_model("wnr-28-10", (3, 32, 32), classes=10)
    Traceback (most recent call last):
    karat.errors.UserError: Unknown model 'wnr-28-10'. Did you mean 'wrn-28-10'?
        Choose one of: auto, small, mlp,
        wrn-DEPTH-WIDTH (such as wrn-28-10), resnet-DEPTH (such as resnet-29).
    >>> build_model("small", (20,), classes=2)
    Traceback (most recent call last):
    karat.errors.UserError: Model 'small' needs images, but the data are vectors of 20 features:
        choose 'mlp' or 'auto'.
    """
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise UserError(
            f"Cannot build a model for examples of shape {shape}: "
            "give images as (channels, height, width) or vectors as (features,)."
        )
    if classes < 2:
        raise UserError(f"A model needs at least 2 classes to tell apart, and the labels have {classes}.")
    if name == "auto":
        name = "small" if len(shape) == 3 else "mlp"
    if name == "mlp":
        return MLP(math.prod(shape), classes)

    wide = re.fullmatch(r"wrn-(\d+)-(\d+)", name)
    bottleneck = re.fullmatch(r"resnet-(\d+)", name)
    if not (name == "small" or wide or bottleneck):
        examples = ["auto", "small", "mlp", "wrn-28-10", "wrn-28-2", "resnet-29"]
        raise UserError(
            f"Unknown model '{name}'.{suggestion(name, examples)} Choose one of: auto, small, mlp, "
            "wrn-DEPTH-WIDTH (such as wrn-28-10), resnet-DEPTH (such as resnet-29)."
        )
    if len(shape) == 1:
        raise UserError(
            f"Model '{name}' needs images, but the data are vectors of {shape[0]} features: choose 'mlp' or 'auto'."
        )
    channels, height, width = shape
    if wide:
        return WideResNet(int(wide[1]), int(wide[2]), channels, classes)
    if bottleneck:
        return ResNetV2(int(bottleneck[1]), channels, classes)
    return SmallResNet(channels, classes, image_size=min(height, width))


def parameter_count(model: nn.Module) -> int:
    """Count the trainable parameters of a model.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
