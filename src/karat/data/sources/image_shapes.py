"""To which size and how many channels a user's images are brought."""

import math
from collections.abc import Sequence

import numpy as np
import torch

from karat.data.decoding import Encoded, Header, Unreadable, is_grey, read_bytes, read_header
from karat.data.sources.problems import counted
from karat.errors import UserError

SMALL = 64  # images of one common size up to this stay as they are
SIZES = (32, 64, 96, 128, 224)
_LOOKED_AT = 300
_MANY = 10_000  # images, of which a CPU trains on small ones only


def choose_shape(
    images: Sequence[Encoded], size: int | None, notes: list[str], of_network: int | None = None
) -> tuple[int, int, int]:
    """Return (channels, height, width) from some of the images, and say why; a `size` that is given is a square's.

    `of_network` is the side that a pretrained network wants: photographs get it, whatever the machine.
    """
    if size is not None and size < 1:
        raise UserError(f"data.image_size is {size}: write 1 or more pixels.")
    places = np.unique(np.linspace(0, len(images) - 1, _LOOKED_AT).round().astype(int)).tolist()
    headers: dict[int, Header] = {}
    for place in places:
        try:
            headers[place] = read_header(images[place])
        except Unreadable:
            continue  # the check of all images names it
    channels = 1 if headers and _all_grey(images, headers) else 3
    height, width = (size, size) if size else _size(list(headers.values()), len(images), notes, of_network)
    if channels == 1:
        notes.append("The images are read in grey: all of those looked at are.")
    return channels, height, width


def _all_grey(images: Sequence[Encoded], headers: dict[int, Header]) -> bool:
    try:
        return all(header.grey or is_grey(read_bytes(images[place])) for place, header in headers.items())
    except Unreadable:
        return False


def _size(headers: list[Header], count: int, notes: list[str], of_network: int | None) -> tuple[int, int]:
    sizes = {(header.height, header.width) for header in headers}
    if len(sizes) == 1 and max(next(iter(sizes))) <= SMALL:
        return next(iter(sizes))
    if of_network is not None:
        notes.append(
            f"The images become {of_network}x{of_network} pixels, the size that the network was trained on: the "
            "shorter side is resized and the centre cut out. --data.image_size N chooses another size."
        )
        return of_network, of_network
    median = float(np.median([min(header.height, header.width) for header in headers])) if headers else SIZES[0]
    gpu = torch.cuda.is_available()
    most = SIZES[-1] if gpu else SMALL if count <= _MANY else SIZES[0]
    side = min(min(SIZES, key=lambda size: abs(math.log(size / median))), most)
    why = f"their shorter side is {median:g} pixels (median)"
    if median > most:
        machine = "a GPU" if gpu else "a machine without a GPU"
        why += f", and {most} is what {machine} trains on in good time with {counted(count, 'image')}"
    notes.append(
        f"The images become {side}x{side} pixels, the shorter side resized and the centre cut out: {why}. "
        "--data.image_size N chooses another size."
    )
    return side, side
