"""Line 1 of Algorithm 1: weak and strong views of a whole batch, from one seeded generator.

Images (channels first, values in [-1, 1]) are augmented with kornia: weak is crop and flip; strong goes on top
of it: policy -> flip -> crop -> cutout. Vectors get feature dropout and small noise instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from karat.errors import UserError


@dataclass(frozen=True)
class AugmentationSettings:
    """How views are made.

    Attributes:
        policy: the first part of the strong view: "randaugment", "autoaugment" (CIFAR's learned policy) or "none".
        magnitude: strength of RandAugment, above 0 and below 30.
        crop: how far images are shifted at most, as a share of their size (1/8: 4 pixels of 32).
        cutout: side of the square that strong views lose, as a share of the image's (1/2: 16 pixels of 32).
        flip: mirror images; null does it where the dataset says that a mirrored image means the same.
        feature_dropout: share of a vector's features that a strong view loses (set to the mean); the weak view
            loses none.
        feature_noise: standard deviation of the noise on a vector's standardised features; a tenth of it in the
            weak view.
    """

    policy: Literal["randaugment", "autoaugment", "none"] = "randaugment"
    magnitude: int = 10
    crop: float = 0.125
    cutout: float = 0.5
    flip: bool | None = None
    feature_dropout: float = 0.4
    feature_noise: float = 0.1

    def __post_init__(self) -> None:
        for name in ("crop", "cutout", "feature_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"augmentation.{name} is {getattr(self, name)}: write a share of at least 0 and below 1."
                )
        if not 0 < self.magnitude < 30:
            raise UserError(f"augmentation.magnitude is {self.magnitude}: write a number from 1 to 29.")
        if self.feature_noise < 0:
            raise UserError(f"augmentation.feature_noise is {self.feature_noise}: write 0 or more.")

    def mirrors(self, by_dataset: bool) -> bool:
        """Return whether images are mirrored, where the dataset says whether that changes what they mean."""
        return by_dataset if self.flip is None else self.flip


class ImageAugmentation:
    """Random views of image batches."""

    def __init__(self, shape: tuple[int, int, int], flip: bool, settings: AugmentationSettings) -> None:
        import kornia.augmentation as K  # imported where needed: vectors do without it, and it is slow

        _, height, width = shape
        flips = [K.RandomHorizontalFlip()] if flip else []
        padding = (round(settings.crop * width), round(settings.crop * height))  # left and right, top and bottom
        crops = [K.RandomCrop((height, width), padding=padding, cropping_mode="slice")] if any(padding) else []
        cutouts = [Cutout(settings.cutout)] if settings.cutout else []
        self._weak = nn.Sequential(*crops, *flips)
        self._strong = nn.Sequential(*_policy(settings, shape), *flips, *crops, *cutouts)

    def weak(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Crop and flip."""
        return _augmented(self._weak, inputs, generator)

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Apply the policy, flip, crop and cut out."""
        return _augmented(self._strong, inputs, generator)


class Cutout(nn.Module):
    """Paint a square of each image in the mean colour of the batch (DeVries and Taylor 2017).

    Its centre may be any pixel, so the square may reach over the border; kornia's RandomErasing keeps it inside.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, images: Tensor) -> Tensor:
        """Return the images with a square hidden in each."""
        inside = [self._inside(len(images), size).to(images.device) for size in images.shape[2:]]
        hidden = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        return torch.where(hidden, images.mean(dim=(0, 2, 3), keepdim=True), images)

    def _inside(self, count: int, size: int) -> Tensor:
        side = round(self.share * size)
        start = torch.randint(size, (count, 1)) - side // 2
        place = torch.arange(size)
        return (place >= start) & (place < start + side)


class VectorAugmentation:
    """Random views of standardised feature vectors."""

    def __init__(self, settings: AugmentationSettings) -> None:
        self._dropout = settings.feature_dropout
        self._noise = settings.feature_noise

    def weak(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Add a little noise."""
        return inputs + 0.1 * self._noise * _normal_like(inputs, generator)

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Set random features to their mean, 0, and add noise."""
        kept = torch.rand(inputs.shape, generator=generator, device=generator.device) >= self._dropout
        return (inputs + self._noise * _normal_like(inputs, generator)) * kept.to(inputs)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Draw torch's global CPU random numbers, which kornia uses, from the generator; put the global state back."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _augmented(transform: nn.Module, inputs: Tensor, generator: torch.Generator) -> Tensor:
    with seeded(generator), torch.no_grad():
        return transform((inputs + 1) / 2).clamp(0, 1) * 2 - 1


def _normal_like(inputs: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(inputs.shape, generator=generator, device=generator.device).to(inputs)


class InColour(nn.Module):
    """Apply an augmentation for colour images to grey ones."""

    def __init__(self, transform: nn.Module) -> None:
        super().__init__()
        self.transform = transform

    def forward(self, images: Tensor) -> Tensor:
        """Repeat the grey channel three times and average what comes back."""
        return self.transform(images.expand(-1, 3, -1, -1)).mean(dim=1, keepdim=True)


def _policy(settings: AugmentationSettings, shape: tuple[int, int, int]) -> list[nn.Module]:
    from kornia.augmentation.auto import AutoAugment, RandAugment
    from kornia.augmentation.auto.rand_augment.rand_augment import default_policy

    if settings.policy == "none":
        return []
    channels, smallest = shape[0], min(shape[1:])
    if settings.policy == "randaugment":
        # The colour operations need three channels, the filter of sharpness three pixels.
        impossible = (() if channels == 3 else ("color", "equalize")) + (() if smallest >= 3 else ("sharpness",))
        policy = [operations for operations in default_policy if operations[0][0] not in impossible]
        return [RandAugment(n=2, m=settings.magnitude, policy=policy)]
    if smallest < 3:
        raise UserError(
            f"AutoAugment's policy is for images of 3 pixels and more, these are {shape[1]}x{shape[2]}: "
            "write augmentation.policy: randaugment."
        )
    if channels not in (1, 3):
        raise UserError(
            f"AutoAugment's policy is for grey and colour images, these have {channels} channels: "
            "write augmentation.policy: randaugment."
        )
    return [AutoAugment("cifar10") if channels == 3 else InColour(AutoAugment("cifar10"))]
