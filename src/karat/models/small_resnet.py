import torch
from torch import Tensor, nn
from torch.nn import functional as F
from karat.models.wide_resnet import PreActivationBlock, initialise


class SmallResNet(nn.Module):
    def __init__(self, in_channels: int, classes: int, width: int = 16, strides=(1,2,2),stem=1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, width, 3, stem, padding=1, bias=False)
        self.blocks = nn.Sequential(
            PreActivationBlock(width, width, stride=strides[0]),
            PreActivationBlock(width, 2 * width, stride=strides[1]),
            PreActivationBlock(2 * width, 4 * width, stride=strides[2]),
        )
        self.norm = nn.BatchNorm2d(4 * width)
        self.head = nn.Linear(4 * width, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.blocks(self.stem(images))))
        return self.head(x.mean(dim=(2, 3)))
