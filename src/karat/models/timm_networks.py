"""Networks of the timm library by their name, fitted to the data; timm itself is imported when one is asked for."""

from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from karat.errors import UserError

PRETRAINED = "+pretrained"
SMALL_IMAGE = 64  # pixels of the shorter side up to which a ResNet's stem keeps the size
ALIASES = {"resnet-50": "resnet50", "inception-resnet-v2": "inception_resnet_v2"}  # the paper's, by timm's names
SMALLEST = {"inception_resnet_v2": 75}  # its unpadded convolutions leave nothing of smaller images


def name_in_timm(model: str) -> str:
    """Return what timm calls a network.

    >>> name_in_timm("timm:resnet18+pretrained"), name_in_timm("resnet-50")
    ('resnet18', 'resnet50')
    """
    plain = model.removesuffix(PRETRAINED)
    return ALIASES.get(plain, plain.removeprefix("timm:"))


def is_timm(name: str) -> bool:
    """Tell whether timm has a network of this name, such as `resnet50` or `resnet50.a1_in1k`.

    >>> is_timm("resnet50"), is_timm("resnet-50")
    (True, False)
    """
    import timm

    return name in timm.list_pretrained() if "." in name else timm.is_model(name)  # behind the dot: whose weights


def near_timm_names(name: str) -> list[str]:
    """Return up to three names of timm networks like a mistyped one.

    >>> "densenet121" in near_timm_names("densenet122")
    True
    """
    import timm

    return get_close_matches(name, timm.list_pretrained() if "." in name else timm.list_models())


def timm_network(name: str, shape: tuple[int, ...], classes: int, *, pretrained: bool = False) -> nn.Module:
    """Build a timm network with random weights for images of a shape, and try it on one image.

    Up to 64 pixels, a ResNet that is trained from the start gets a stem that keeps the size; every other network is
    taken as it is. Those that are to get pretrained weights are wrapped by `PretrainedInput`, which takes grey images,
    too.

    >>> timm_network("test_vit", (1, 32, 32), classes=3)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 3])
    >>> timm_network("inception_resnet_v2", (3, 32, 32), classes=3)
    Traceback (most recent call last):
    karat.errors.UserError: Network 'inception_resnet_v2' does not fit images of 32x32 (it needs 75 pixels or more):
        use images of another size, or a network for any size such as 'resnet-50' or 'vgg-13'.
    """
    channels, height, width = shape
    smallest = SMALLEST.get(name.split(".")[0], 1)
    if min(height, width) < smallest:
        raise _does_not_fit(name, shape, f"it needs {smallest} pixels or more")
    if pretrained and channels not in (1, 3):
        raise UserError(
            f"The pretrained '{name}' takes images of 1 or 3 channels, and these have {channels}: "
            f"train it from the start, without '{PRETRAINED}'."
        )
    options = {"num_classes": classes, "in_chans": 3 if pretrained else channels}
    try:
        network = create_network(name, (height, width), options)
        if not pretrained:
            _keep_size_in_stem(network, min(height, width))
        _try_on_zeros(network, (options["in_chans"], height, width), classes)
    except Exception as error:  # timm's networks complain in many ways of a size that they cannot take
        raise _does_not_fit(name, shape, first_line(error)) from error
    if not pretrained:
        return network
    source: Any = network.pretrained_cfg
    return PretrainedInput(network, source["mean"], source["std"])


class PretrainedInput(nn.Module):
    """Give a pretrained network the scale that it was trained on: `((x + 1)/2 − mean) / std` for x in [-1, 1].

    A grey channel is repeated for each of the network's channels.

    >>> half = PretrainedInput(nn.Identity(), mean=(0.5, 0.5, 0.0), std=(0.5, 0.25, 1.0))
    >>> half(torch.ones(1, 1, 1, 1)).flatten().tolist()
    [1.0, 2.0, 1.0]
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.network = network
        centre, spread = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)
        # constants of the name, not learnt: not in the checkpoint
        self.register_buffer("scale", 0.5 / spread, persistent=False)
        self.register_buffer("shift", (0.5 - centre) / spread, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        return self.network(images * self.scale + self.shift)  # broadcasting repeats a grey channel


def create_network(name: str, size: tuple[int, int], options: dict[str, Any]) -> nn.Module:
    """Create a network, telling it the size of the images if it wants to know."""
    import timm

    try:
        return timm.create_model(name, img_size=size, **options)
    except TypeError as error:
        if "img_size" not in str(error):
            raise
        return timm.create_model(name, **options)


def _keep_size_in_stem(network: nn.Module, image_size: int) -> None:
    """Replace the 7x7 stem of stride 2 of a ResNet for small images by a 3x3 one of stride 1, without max-pooling.

    A stem of three 3x3 convolutions keeps them, all with stride 1. Changes the network in place.
    """
    from timm.models.resnet import ResNet

    if image_size > SMALL_IMAGE or not isinstance(network, ResNet):
        return
    stem: Any = network.conv1
    if isinstance(stem, nn.Conv2d):
        network.conv1 = nn.Conv2d(stem.in_channels, stem.out_channels, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")  # as timm's own
    else:
        stem[0].stride = (1, 1)
    network.maxpool = nn.Identity()


def _try_on_zeros(network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Classify one black image in evaluation mode, which changes neither statistics nor random state."""
    from timm.layers import PatchEmbed

    patches = getattr(network, "patch_embed", None)
    if isinstance(patches, PatchEmbed) and not patches.dynamic_img_pad:
        for side, patch in zip(shape[1:], patches.patch_size, strict=True):
            if side % patch:  # timm would drop the pixels that are left over
                raise ValueError(f"its patches are {patch} pixels wide, and {side} is no multiple of that")
    with torch.no_grad():
        logits = network.eval()(torch.zeros(1, *shape))
    network.train()
    if logits.shape != (1, classes):
        raise ValueError(f"it returns {tuple(logits.shape[1:])} numbers for an image instead of {classes}")


def _does_not_fit(name: str, shape: tuple[int, ...], reason: str) -> UserError:
    return UserError(
        f"Network '{name}' does not fit images of {shape[1]}x{shape[2]} ({reason}): "
        "use images of another size, or a network for any size such as 'resnet-50' or 'vgg-13'."
    )


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or what it is called."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
