"""A network that learns much from few passes over small images, after the speed runs on CIFAR-10.

Its parts are those of Jordan's `airbench` (arXiv 2404.00498, Muon's version): a first layer that whitens patches and is
never trained, convolutions that begin as the identity, BatchNorm without a scale, a scaled linear head. Widths are
this file's own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from karat.errors import UserError

SMALLEST_IMAGE = 8
PATCH = 2
SMALLEST_SIDE = 3  # pixels that pooling leaves
FLATTENING = 5e-4  # added to the variance of every direction of patches: the faintest ones are not blown up


class Whitening(nn.Module):
    """Turn 2x2 patches into uncorrelated numbers of variance 1, and their negatives, plus a bias that is learned.

    With eigenvectors v_k and eigenvalues e_k of the second moments of patches p, the channels are
    `±v_k·p / √(e_k + 5e-4)`. Until `look_at` has seen inputs, every pixel is taken to be white noise. The directions
    are a buffer: kept with the weights, never trained.

    >>> layer = Whitening(1)
    >>> layer.look_at(torch.randn(500, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 3)
    >>> bool((layer(torch.randn(500, 1, 8, 8) * 3).std() - 1).abs() < 0.05)
    True
    """

    directions: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        size = in_channels * PATCH**2
        self.register_buffer("directions", _with_negatives(torch.eye(size), in_channels))
        self.bias = nn.Parameter(torch.zeros(2 * size))

    @torch.no_grad()
    def look_at(self, images: Tensor) -> None:
        """Read the directions off images, in place."""
        patches = F.unfold(images.double(), PATCH).transpose(1, 2).flatten(0, 1)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        scaled = directions.T / (variances.clamp(min=0) + FLATTENING).sqrt()[:, None]
        self.directions.copy_(_with_negatives(scaled, images.shape[1]))

    def forward(self, images: Tensor) -> Tensor:
        """Return the whitened patches."""
        return F.conv2d(images, self.directions, self.bias)


class Shift(nn.BatchNorm2d):
    """BatchNorm whose shift is learned; its scale stays 1."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight.requires_grad_(False)  # torch cannot back-propagate twice through a shift without a scale


class Group(nn.Sequential):
    """Two convolutions, each before BatchNorm and GELU; the first one's output is pooled if asked."""

    def __init__(self, in_channels: int, out_channels: int, *, pool: bool) -> None:
        super().__init__(
            _identity_convolution(in_channels, out_channels),
            nn.MaxPool2d(2) if pool else nn.Identity(),
            Shift(out_channels),
            nn.GELU(),
            _identity_convolution(out_channels, out_channels),
            Shift(out_channels),
            nn.GELU(),
        )


class Fast(nn.Module):
    """Classify images of 8 to 64 pixels by three groups of (1, 4, 4)·width channels and the maxima over the image.

    A group halves the image as long as three pixels are left: 32 pixels go through 31, 15, 7 and 3, 8 pixels through 7,
    3, 3 and 3. `image_size` is the shorter side. The published network has width 64. The head's inputs are divided by
    the square root of their number.

    >>> Fast(16, in_channels=3, classes=10, image_size=32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> Fast(16, in_channels=3, classes=10, image_size=4)
    Traceback (most recent call last):
    karat.errors.UserError: Model 'fast' is for images of 8 pixels and more, and these have 4: choose 'small'.
    """

    def __init__(self, width: int, in_channels: int, classes: int, image_size: int) -> None:
        super().__init__()
        if width < 1:
            raise UserError(f"Model 'fast' cannot be {width} wide: use a width of 1 or more, such as 16.")
        if image_size < SMALLEST_IMAGE:
            raise UserError(
                f"Model 'fast' is for images of {SMALLEST_IMAGE} pixels and more, and these have {image_size}: "
                "choose 'small'."
            )
        self.whitening = Whitening(in_channels)
        groups: list[nn.Module] = []
        before, size = len(self.whitening.bias), image_size - PATCH + 1
        for channels in (width, 4 * width, 4 * width):
            pool = size // 2 >= SMALLEST_SIDE
            groups.append(Group(before, channels, pool=pool))
            before, size = channels, size // 2 if pool else size
        self.groups = nn.Sequential(nn.GELU(), *groups)
        self.head = nn.Linear(before, classes)
        nn.init.normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.scale = before**-0.5

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        return self.head(self.groups(self.whitening(images)).amax(dim=(2, 3)) * self.scale)


def _identity_convolution(in_channels: int, out_channels: int) -> nn.Conv2d:
    """Return a 3x3 convolution whose first channels are its input; the others are drawn as torch draws them."""
    convolution = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
    nn.init.dirac_(convolution.weight.data[:in_channels])
    return convolution


def _with_negatives(directions: Tensor, channels: int) -> Tensor:
    return torch.cat([directions, -directions]).view(-1, channels, PATCH, PATCH)
