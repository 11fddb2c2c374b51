"""The networks that Karat trains: the paper's, small ones for one processor, and all of timm's.

All are plain modules from examples to logits, chosen by name and built for the shape of the data:
`(channels, height, width)` for images, `(features,)` for vectors. Initial parameters are drawn from torch's
global generator, so `torch.manual_seed` fixes them.
"""

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from karat.errors import UserError, suggestion
from karat.models.densenet import DenseNet
from karat.models.fast import SMALLEST_IMAGE, Fast, Whitening
from karat.models.mlp import MLP
from karat.models.pretrained import describe, is_pretrained, load_backbone
from karat.models.resnet_v2 import ResNetV2
from karat.models.small_resnet import SmallResNet
from karat.models.timm_networks import (
    ALIASES,
    PRETRAINED,
    SMALL_IMAGE,
    PretrainedInput,
    is_timm,
    name_in_timm,
    near_timm_names,
    timm_network,
)
from karat.models.vgg import VGG
from karat.models.wide_resnet import WideResNet

__all__ = [
    "LINEAR",
    "MLP",
    "PRETRAINED",
    "SMALLEST_IMAGE",
    "SMALL_IMAGE",
    "VGG",
    "DenseNet",
    "Fast",
    "ResNetV2",
    "SmallResNet",
    "WideResNet",
    "build_model",
    "look_at_inputs",
    "parameter_count",
]

FAST_WIDTH = 16  # a quarter of the published width
LINEAR = "linear"  # one layer: what features that nobody trains need
# A word in capitals stands for a number, which the function takes before shape and classes.
IMAGE_NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "fast": lambda shape, classes: Fast(FAST_WIDTH, shape[0], classes, min(shape[1:])),
    "fast-WIDTH": lambda width, shape, classes: Fast(width, shape[0], classes, min(shape[1:])),
    "small": lambda shape, classes: SmallResNet(shape[0], classes, min(shape[1:])),
    "wrn-DEPTH-WIDTH": lambda depth, width, shape, classes: WideResNet(depth, width, shape[0], classes),
    "resnet-DEPTH": lambda depth, shape, classes: ResNetV2(depth, shape[0], classes),
    "vgg-DEPTH": lambda depth, shape, classes: VGG(depth, shape[0], classes, min(shape[1:])),
    "densenet-DEPTH": lambda depth, shape, classes: DenseNet(depth, shape[0], classes, min(shape[1:])),
}
EXAMPLES = {
    "fast-WIDTH": "fast-32",
    "wrn-DEPTH-WIDTH": "wrn-28-10",
    "resnet-DEPTH": "resnet-29",
    "vgg-DEPTH": "vgg-13",
    "densenet-DEPTH": "densenet-100",
}


def build_model(
    name: str, shape: tuple[int, ...], classes: int, *, fetch: bool = True, weights: Path | None = None
) -> nn.Module:
    """Build the network of a name for data of a shape, `(channels, height, width)` or `(features,)`.

    `auto` is `fast` for images (`small` below 8 pixels) and `mlp` for vectors; `mlp` takes images too, flattened.
    `timm:NAME`, or NAME alone, is a network of timm. With `+pretrained` behind it, it has the weights in timm's cache,
    unless `fetch` is False because others are loaded into it anyway; or it has those of the file `weights`.

    >>> parameter_count(build_model("wrn-28-2", (3, 32, 32), classes=10))
    1467610
    >>> build_model("wnr-28-10", (3, 32, 32), classes=10)
    Traceback (most recent call last):
    karat.errors.UserError: Unknown model 'wnr-28-10'. Did you mean 'wrn-28-10'?
        Choose one of: auto, linear, mlp, mlp-WIDTH (such as mlp-512), fast, fast-WIDTH (such as fast-32), small,
        wrn-DEPTH-WIDTH (such as wrn-28-10), resnet-DEPTH (such as resnet-29), vgg-DEPTH (such as vgg-13),
        densenet-DEPTH (such as densenet-100), resnet-50, inception-resnet-v2, or a network of timm (such as
        convnext_atto or timm:resnet18+pretrained).
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
        name = "mlp" if len(shape) == 1 else "fast" if min(shape[1:]) >= SMALLEST_IMAGE else "small"
    if name == LINEAR:
        if len(shape) != 1:
            raise UserError("Model 'linear' needs vectors, but the data are images: choose 'fast' or 'auto'.")
        return nn.Linear(shape[0], classes)
    if name == "mlp":
        return MLP(math.prod(shape), classes)
    if width := re.fullmatch("mlp-([1-9][0-9]{0,4})", name):
        return MLP(math.prod(shape), classes, int(width[1]))
    pretrained = is_pretrained(name, weights)
    build = _image_network(name, pretrained)
    if len(shape) == 1:
        raise UserError(
            f"Model '{name}' needs images, but the data are vectors of {shape[0]} features: choose 'mlp' or 'auto'."
        )
    if not pretrained or not fetch:
        return build(shape, classes)
    network = build(shape, classes)
    source, file = describe(name, weights)
    assert isinstance(network, PretrainedInput)
    load_backbone(network.network, file, source.architecture)
    return network


def _image_network(name: str, pretrained: bool) -> Callable[[tuple[int, ...], int], nn.Module]:
    """Look up the function of shape and classes that a name stands for; the error lists the legal names."""
    plain = name.removesuffix(PRETRAINED)
    for pattern, build in IMAGE_NETWORKS.items():
        match = re.fullmatch(re.sub("[A-Z]+", "([0-9]+)", pattern), plain)
        if match is None or plain in ALIASES:  # 50 is no depth of a ResNet v2
            continue
        if pretrained:
            raise UserError(f"Model '{plain}' has no pretrained weights: only the networks of timm have them.")
        return partial(build, *map(int, match.groups()))
    in_timm = name_in_timm(name)
    if is_timm(in_timm):
        return partial(timm_network, in_timm, pretrained=pretrained)
    own = [f"{pattern} (such as {EXAMPLES[pattern]})" if pattern in EXAMPLES else pattern for pattern in IMAGE_NETWORKS]
    near = ", ".join(near_timm_names(in_timm))
    likely = ["auto", "mlp", "small", "fast", *EXAMPLES.values(), *ALIASES]
    raise UserError(
        f"Unknown model '{name}'.{suggestion(plain, likely)}"
        f"{f' timm has {near}.' if near else ''} "
        f"Choose one of: {', '.join(['auto', LINEAR, 'mlp', 'mlp-WIDTH (such as mlp-512)', *own, *ALIASES])}, "
        "or a network of timm (such as convnext_atto or timm:resnet18+pretrained)."
    )


def look_at_inputs(model: nn.Module, sample: Callable[[], Tensor]) -> None:
    """Show a few inputs to the layers that are read off them, in place; `sample` is called where there are such."""
    layers = [layer for layer in model.modules() if isinstance(layer, Whitening)]
    inputs = sample() if layers else None
    for layer in layers:
        assert inputs is not None
        layer.look_at(inputs)


def parameter_count(model: nn.Module) -> int:
    """Count the trainable parameters of a model.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
