"""ResNet v2 with bottleneck blocks, as in keras-team's `cifar10_resnet.py`: the paper uses depth 29."""

from torch import Tensor, nn
from torch.nn import functional as F

from karat.errors import UserError


class Bottleneck(nn.Module):
    """Add 1x1, 3x3 and 1x1 convolutions, each after BatchNorm and ReLU, to the input.

    The network's first block has its input activated by the stem, and does not activate it again.
    The first block of every stage projects its shortcut, from the input as it is, without BatchNorm.
    """

    def __init__(self, before: int, inner: int, after: int, *, stride: int, activate: bool, project: bool) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before) if activate else None
        self.conv1 = nn.Conv2d(before, inner, 1, stride)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1)
        self.norm3 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, after, 1)
        self.shortcut = nn.Conv2d(before, after, 1, stride) if project else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, before any activation."""
        residual = x if self.norm1 is None else F.relu(self.norm1(x))
        residual = self.conv1(residual)
        residual = self.conv2(F.relu(self.norm2(residual)))
        residual = self.conv3(F.relu(self.norm3(residual)))
        return residual + (x if self.shortcut is None else self.shortcut(x))


class ResNetV2(nn.Module):
    """Classify images of 8x8 or more by three stages of 64, 128 and 256 channels.

    The depth is 9n+2: n blocks of three convolutions a stage, the stem and the head.

    >>> import torch
    >>> ResNetV2(depth=11, in_channels=3, classes=10)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> ResNetV2(depth=28, in_channels=3, classes=10)
    Traceback (most recent call last):
    karat.errors.UserError: A ResNet v2 cannot be 28 deep: the depth is 9n+2. Use 29, or another such as 11, 20 or 29.
    """

    def __init__(self, depth: int, in_channels: int, classes: int) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 9)
        if blocks < 1 or rest:
            nearest = 9 * max(1, round((depth - 2) / 9)) + 2
            imagenet = f" timm's network for ImageNet is called 'resnet{depth}'." if depth in (18, 34, 50, 152) else ""
            raise UserError(
                f"A ResNet v2 cannot be {depth} deep: the depth is 9n+2. "
                f"Use {nearest}, or another such as 11, 20 or 29.{imagenet}"
            )
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1)
        self.stem_norm = nn.BatchNorm2d(16)
        stages = []
        before = 16
        for stage, (inner, after) in enumerate(((16, 64), (64, 128), (128, 256))):
            for block in range(blocks):
                first = block == 0
                stages.append(
                    Bottleneck(
                        before,
                        inner,
                        after,
                        stride=2 if first and stage > 0 else 1,
                        activate=not (first and stage == 0),
                        project=first,
                    )
                )
                before = after
        self.blocks = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(before)
        self.head = nn.Linear(before, classes)
        # he_normal and zero biases everywhere: the keras file's initialisation, the head included
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        x = F.relu(self.stem_norm(self.stem(images)))
        x = F.relu(self.norm(self.blocks(x)))
        return self.head(x.mean(dim=(2, 3)))
