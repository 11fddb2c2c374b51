"""VGG with BatchNorm (Simonyan and Zisserman, 2015): a VGG-13 makes the paper's semantic noise."""

from torch import Tensor, nn

from karat.errors import UserError
from karat.models.wide_resnet import initialise

# 3x3 convolutions in each of the five stages; the depth counts the authors' three linear layers, too
STAGES = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


class VGG(nn.Module):
    """Classify images by five stages of 64, 128, 256, 512 and 512 channels and one linear map of their mean.

    Every stage ends in 2x2 max-pooling as long as more than one pixel is left: 32x32 images go through 16, 8, 4, 2
    and 1, 8x8 images through 4, 2, 1, 1 and 1. `image_size` is their shorter side. As usual for CIFAR, one linear head
    on the mean over the image takes the place of the authors' three, which hold 120M of VGG-13's 133M parameters.

    >>> import torch
    >>> VGG(11, in_channels=3, classes=10, image_size=8)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    >>> VGG(12, in_channels=3, classes=10, image_size=8)
    Traceback (most recent call last):
    karat.errors.UserError: A VGG cannot be 12 deep: use 11, 13, 16 or 19.
    """

    def __init__(self, depth: int, in_channels: int, classes: int, image_size: int) -> None:
        super().__init__()
        if depth not in STAGES:
            raise UserError(f"A VGG cannot be {depth} deep: use 11, 13, 16 or 19.")
        layers: list[nn.Module] = []
        before, size = in_channels, image_size
        for convolutions, channels in zip(STAGES[depth], (64, 128, 256, 512, 512), strict=True):
            for _ in range(convolutions):
                # BatchNorm's shift takes the place of the convolution's bias
                layers += [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
                before = channels
            if size > 1:
                layers.append(nn.MaxPool2d(2))
                size //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        return self.head(self.features(images).mean(dim=(2, 3)))
