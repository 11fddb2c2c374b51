"""Encoders of sentence-transformers by name or folder: an extra, and nothing is fetched unasked."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from karat.errors import UserError

_BATCH = 64


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A model of sentence-transformers, known by its name or folder and by a hash of its weights."""

    name: str
    digest: str
    model: Any

    @property
    def width(self) -> int:
        """Return how many numbers a text becomes."""
        return int(self.encode([""]).shape[1])

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return a vector for each text, as the model makes it."""
        found = self.model.encode(
            list(texts), batch_size=_BATCH, convert_to_tensor=True, show_progress_bar=len(texts) > 10 * _BATCH
        )
        return found.detach().float().cpu().clone()

    def describe(self) -> dict[str, Any]:
        """Return what schema.json says: the run folder does not hold the weights."""
        return {"kind": "sentence-transformers", "name": self.name, "digest": self.digest}

    def save(self, folder: Path) -> None:
        """Write nothing."""


def load_sentence_encoder(name: str, download: bool = False, digest: str | None = None) -> SentenceEncoder:
    """Load an encoder from a folder or, by its name, from the cache of this machine; `download` may fetch it.

    With a digest, other weights than those are refused.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise UserError(
            f"The encoder {name} needs sentence-transformers: install it with pip install karat[text], or leave "
            "--data.encoder out."
        ) from error
    place = str(Path(name).resolve()) if Path(name).is_dir() else name
    try:
        model = SentenceTransformer(place, device="cpu", local_files_only=not download, trust_remote_code=False)
    except Exception as error:  # of the file system, the network, or of whatever is in the folder
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"The encoder {name} is not on this machine or cannot be read ({reason}): give the folder of one, or fetch "
            "it with --data.download true."
        ) from error
    found = _digest(model)
    if digest is not None and found != digest:
        raise UserError(
            f"The encoder {name} has other weights than the one that the run was trained with: put that one back, or "
            "train again."
        )
    return SentenceEncoder(place, found, model.eval())


def _digest(model: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
