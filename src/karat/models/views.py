"""A network that is asked about several views of an image when it predicts, and answers with their mean."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from karat.errors import choose


def mirrored(images: Tensor) -> list[Tensor]:
    """Return the images and their mirror images."""
    return [images, images.flip(3)]


def shifted(images: Tensor) -> list[Tensor]:
    """Return the images, shifted by a pixel up and left, down and right; what is shifted out is seen again inside.

    >>> [view.flatten().tolist() for view in shifted(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))]
    [[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]]
    """
    height, width = images.shape[2:]
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    return [images, padded[:, :, 2:, 2:], padded[:, :, :height, :width]]


def mirrored_and_shifted(images: Tensor) -> list[Tensor]:
    """Return three shifts and their mirror images."""
    return [view for one in shifted(images) for view in mirrored(one)]


VIEWS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "mirrored": mirrored,
    "shifted": shifted,
    "mirrored_and_shifted": mirrored_and_shifted,
}


class Views(nn.Module):
    """Return the mean of a network's logits over views of the inputs in evaluation mode; in training the network's own.

    >>> right_half = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    >>> model, images = Views(right_half, "mirrored").eval(), torch.tensor([[[[0.0, 1.0]]]])
    >>> torch.equal(model(images), model(images.flip(3)))
    True
    """

    def __init__(self, network: nn.Module, kind: str) -> None:
        super().__init__()
        self.network = network
        self._views = choose("kind of views", kind, VIEWS)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one row of logits for every input."""
        if self.training:
            return self.network(inputs)
        return torch.stack([self.network(view) for view in self._views(inputs)]).mean(dim=0)


def with_views(network: nn.Module, kind: str) -> nn.Module:
    """Return a network that is asked about these views; about the inputs alone where they are `plain`."""
    return network if kind == "plain" else Views(network, kind)
