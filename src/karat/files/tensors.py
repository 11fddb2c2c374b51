"""Named tensors in a safetensors file, written from where they lie: a mapped one is never copied into memory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from karat.errors import DamagedFile, unreadable
from karat.files.atomic import replacing

_NAMES = {
    torch.int64: "I64", torch.float32: "F32", torch.int32: "I32", torch.float16: "F16", torch.uint8: "U8",
}  # fmt: skip


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write contiguous tensors, all or nothing. safetensors' own writer makes a second copy of all of them first."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    # Wide types first: every tensor then starts at a multiple of its item size, as readers that map the file need it.
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    offset = 0
    for name, tensor in ordered.items():
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in ordered.values():
            if tensor.numel():  # an empty one has no bytes to look at
                file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of such a file; a damaged or foreign one is refused."""
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except OSError as error:
        raise unreadable(path, error) from error
    except SafetensorError as error:
        raise DamagedFile(f"{path} is damaged or is not a safetensors file: train again.") from error


def packed(texts: tuple[str, ...]) -> dict[str, Tensor]:
    """Return texts as bytes and the place where each one ends.

    >>> unpacked(packed(("a", "", "é")))
    ('a', '', 'é')
    """
    parts = [text.encode("utf-8", "surrogateescape") for text in texts]
    ends = torch.tensor([len(part) for part in parts], dtype=torch.int64).cumsum(0)
    return {"bytes": torch.frombuffer(bytearray(b"".join(parts) or b" "), dtype=torch.uint8), "ends": ends}


def unpacked(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the texts of `packed`."""
    content, ends = tensors["bytes"].numpy().tobytes(), tensors["ends"].tolist()
    return tuple(
        content[start:end].decode("utf-8", "surrogateescape") for start, end in zip([0, *ends], ends, strict=False)
    )
