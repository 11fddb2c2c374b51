"""Line 1 of Algorithm 1: weak and strong views of a whole batch, from one seeded generator.

Images (channels first, values in [-1, 1]) are augmented by shifts and mirroring (weak); strong goes on top of
it: policy (kornia's) -> mirror and shift -> cutout. A close-up, for methods that compare views, is a part of the image
in other colours. Vectors get feature dropout and small noise instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from karat.data.settings import AugmentationSettings
from karat.errors import UserError

SMALLEST_PART = 0.5  # of an image's area that a close-up shows
FEWEST_SHOWN = 20  # pixels of its shorter side, where there are so many: with fewer nobody sees what it is
MOST_STRETCHED = 1.2  # one side against the other
BRIGHTNESS, CONTRAST, SATURATION = 0.4, 0.4, 0.6  # by how much of themselves they change at most
GREY = 0.2  # share of the close-ups without colours


class ImageAugmentation:
    """Random views of image batches."""

    def __init__(self, shape: tuple[int, int, int], flip: bool, settings: AugmentationSettings) -> None:
        self._flip = flip
        self._most = [shift_of(settings.crop, side) for side in shape[1:]]
        cutouts = [Cutout(settings.cutout)] if settings.cutout else []
        self._policy, self._cutout = nn.Sequential(*_policy(settings, shape)), nn.Sequential(*cutouts)

    def weak(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Shift and mirror; `mirrored` says which, None draws it."""
        with torch.no_grad():
            return self._moved(inputs, generator, mirrored)

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Apply the policy, mirror, shift and cut out."""
        with seeded(generator), torch.no_grad():
            changed = self._policy((inputs + 1) / 2).clamp(0, 1) * 2 - 1 if len(self._policy) else inputs
            return self._cutout(self._moved(changed, generator, None))

    def close_up(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Show a part of it, at the size of the whole, in other colours; shift and mirror it."""
        with torch.no_grad():
            return recoloured(_part(self._moved(inputs, generator, mirrored), generator), generator)

    def _moved(self, images: Tensor, generator: torch.Generator, mirrored: Tensor | None) -> Tensor:
        count, device = len(images), generator.device
        if self._flip and mirrored is None:
            mirrored = torch.rand(count, generator=generator, device=device) < 0.5
        places = []
        for side, most in zip(images.shape[2:], self._most, strict=True):
            shifts = torch.randint(-most, most + 1, (count, 1), generator=generator, device=device)
            places.append((shifts + torch.arange(side, device=device)).to(images.device))
        rows, columns = places
        if mirrored is not None:
            backwards = columns.flip(1)
            columns = torch.where(mirrored.to(images.device)[:, None], backwards, columns)
        return taken(images, rows, columns)


def _part(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a part of each image, stretched a little, at the size of the whole; small images are shown whole."""
    area, stretch, right, down = _uniform(4, len(images), generator).to(images).unbind()
    smallest = min(1.0, max(SMALLEST_PART, (FEWEST_SHOWN / min(images.shape[2:])) ** 2))
    side = (smallest + (1 - smallest) * area).sqrt()
    factor = MOST_STRETCHED ** (2 * stretch - 1)
    width, height = (side * factor).clamp(max=1), (side / factor).clamp(max=1)
    place = images.new_zeros(len(images), 2, 3)
    place[:, 0, 0], place[:, 1, 1] = width, height
    place[:, 0, 2], place[:, 1, 2] = (2 * right - 1) * (1 - width), (2 * down - 1) * (1 - height)
    grid = F.affine_grid(place, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def recoloured(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images of other brightness and contrast, and those with three channels of other saturation or without.

    >>> grey = recoloured(torch.full((2, 1, 4, 4), -1.0), torch.Generator().manual_seed(0))
    >>> torch.equal(grey, torch.full((2, 1, 4, 4), -1.0))  # black stays black
    True
    """
    drawn = _uniform(4, len(images), generator).to(images)[:, :, None, None, None]
    brightness, contrast, saturation = (
        1 + most * (2 * part - 1) for most, part in zip((BRIGHTNESS, CONTRAST, SATURATION), drawn[:3], strict=True)
    )
    bright = brightness * (images + 1) / 2
    found = bright.mean(dim=(1, 2, 3), keepdim=True).lerp(bright, contrast)
    if images.shape[1] == 3:
        found = found.mean(dim=1, keepdim=True).lerp(found, torch.where(drawn[3] < GREY, 0.0, saturation))
    return (2 * found.clamp(0, 1) - 1).contiguous(memory_format=torch.channels_last)


def _uniform(numbers: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(numbers, count, generator=generator, device=generator.device)


def shift_of(share: float, side: int) -> int:
    """Return by how many pixels an image of this side is shifted at most: the share of it, but one at least.

    >>> shift_of(1 / 16, 32), shift_of(1 / 16, 8), shift_of(0.0, 8)
    (2, 1, 0)
    """
    return min(side - 1, max(1, round(share * side))) if share else 0


def taken(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return of each image the pixels at its rows and columns; those beyond a border are seen in it as in a mirror.

    One gather for the whole batch; the result has its channels last in memory.

    >>> taken(torch.arange(3.0).view(1, 1, 1, 3), torch.tensor([[0]]), torch.tensor([[-1, 0, 3]])).flatten()
    tensor([1., 0., 1.])
    """
    height, width = images.shape[2:]
    rows = (height - 1) - ((height - 1) - rows.abs()).abs()
    columns = (width - 1) - ((width - 1) - columns.abs()).abs()
    each = torch.arange(len(images), device=images.device)[:, None, None]
    return images[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


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

    def weak(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Add a little noise; vectors have no mirror image."""
        return inputs + 0.1 * self._noise * _normal_like(inputs, generator)

    def close_up(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Vectors have no parts: this is the strong view."""
        return self.strong(inputs, generator)

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
