"""DenseNet-BC with growth 12 and compression 0.5 (Huang et al., 2017): depth 100 is a baseline in the paper."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from karat.errors import UserError
from karat.models.wide_resnet import initialise

GROWTH = 12


class DenseLayer(nn.Module):
    """Append `GROWTH` new channels to the input: a 1x1 and a 3x3 convolution, each after BatchNorm and ReLU."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, 4 * GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with the new channels behind it."""
        inner = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(inner)))], dim=1)


class TransitionLayer(nn.Sequential):
    """Halve the channels by a 1x1 convolution after BatchNorm and ReLU, and the image by its 2x2 means."""

    def __init__(self, in_channels: int, *, pool: bool) -> None:
        super().__init__(
            nn.BatchNorm2d(in_channels),
            nn.ReLU(),
            nn.Conv2d(in_channels, in_channels // 2, 1, bias=False),
            nn.AvgPool2d(2) if pool else nn.Identity(),
        )


class DenseNet(nn.Module):
    """Classify images by three dense blocks with a transition between them.

    The depth is 6n+4: n layers of two convolutions a block, the stem, two transitions and the head. `image_size` is
    the shorter side of the images. The stem is a 3x3 convolution; for images of more than 64 pixels it is a 7x7
    convolution of stride 2 and max-pooling, as in the authors' network for ImageNet. Transitions halve the image as
    long as more than one pixel is left.

    >>> DenseNet(depth=10, in_channels=3, classes=10, image_size=8)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> DenseNet(depth=99, in_channels=3, classes=10, image_size=8)
    Traceback (most recent call last):
    karat.errors.UserError: A DenseNet cannot be 99 deep: the depth is 6n+4. Use 100, or another such as 22, 40 or 100.
    """

    def __init__(self, depth: int, in_channels: int, classes: int, image_size: int) -> None:
        super().__init__()
        layers, rest = divmod(depth - 4, 6)
        if layers < 1 or rest:
            nearest = 6 * max(1, round((depth - 4) / 6)) + 4
            raise UserError(
                f"A DenseNet cannot be {depth} deep: the depth is 6n+4. "
                f"Use {nearest}, or another such as 22, 40 or 100."
            )
        channels = 2 * GROWTH
        self.stem: nn.Module
        if image_size > 64:
            self.stem = nn.Sequential(
                nn.Conv2d(in_channels, channels, 7, stride=2, padding=3, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.MaxPool2d(3, stride=2, padding=1),
            )
        else:
            self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        size = image_size
        blocks: list[nn.Module] = []
        for block in range(3):
            if block > 0:
                blocks.append(TransitionLayer(channels, pool=size > 1))
                channels, size = channels // 2, size // 2
            blocks += [DenseLayer(channels + GROWTH * layer) for layer in range(layers)]
            channels += GROWTH * layers
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        x = F.relu(self.norm(self.blocks(self.stem(images))))
        return self.head(x.mean(dim=(2, 3)))
