"""Wide residual networks (Zagoruyko and Komodakis, 2016): WRN-28-10 is the paper's network for CIFAR."""

from torch import Tensor, nn
from torch.nn import functional as F

from karat.errors import UserError


class PreActivationBlock(nn.Module):
    """Add two 3x3 convolutions, each after BatchNorm and ReLU, to the input.

    Where the shape changes, the shortcut is a 1x1 convolution of the activated input, as in the authors' code.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        same_shape = in_channels == out_channels and stride == 1
        self.shortcut = None if same_shape else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, before any activation."""
        active = F.relu(self.norm1(x))
        residual = F.relu(self.norm2(self.conv1(active)))
        residual = self.conv2(self.dropout(residual))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """Classify images of 8x8 or more by three stages of (16, 32, 64)·width channels.

    The depth is 6n+4: n blocks of two convolutions a stage, the stem and three shortcuts.

    >>> import torch
    >>> WideResNet(depth=10, width=1, in_channels=3, classes=10)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> WideResNet(depth=27, width=1, in_channels=3, classes=10)
    Traceback (most recent call last):
    karat.errors.UserError: A wide ResNet cannot be 27 deep: the depth is 6n+4. Use 28, or another such as 10, 16 or 22.
    """

    def __init__(self, depth: int, width: int, in_channels: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if blocks < 1 or rest:
            nearest = 6 * max(1, round((depth - 4) / 6)) + 4
            raise UserError(
                f"A wide ResNet cannot be {depth} deep: the depth is 6n+4. "
                f"Use {nearest}, or another such as 10, 16 or 22."
            )
        if width < 1:
            raise UserError(f"A wide ResNet cannot be {width} wide: use a width of 1 or more, such as 10.")
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        stages = []
        before = 16
        for channels, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
            stages.append(PreActivationBlock(before, channels, stride, dropout))
            stages += [PreActivationBlock(channels, channels, 1, dropout) for _ in range(blocks - 1)]
            before = channels
        self.blocks = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(before)
        self.head = nn.Linear(before, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        x = F.relu(self.norm(self.blocks(self.stem(images))))
        return self.head(x.mean(dim=(2, 3)))


def initialise(network: nn.Module) -> None:
    """Draw the convolutions from He's normal distribution (fan out) and zero the head's bias, in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
