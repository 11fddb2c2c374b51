"""Encoders of sentence-transformers by name or folder: an extra, and nothing is fetched unasked."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from karat.errors import UserError
from karat.files.required import fitting

_BATCH = 64
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


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
    if Path(name).is_dir():
        refuse_code(Path(name))
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


def refuse_code(folder: Path) -> None:
    """Refuse the folder of an encoder that would run code of its own: older versions of the library run it unasked."""
    for path in folder.rglob("*"):
        if path.suffix == ".py":
            raise UserError(f"{path} is code, and an encoder of texts must hold none: use another encoder.")
        if path.suffix in _PICKLES and not list(path.parent.glob("*.safetensors")):
            raise UserError(f"{path} may hold code: use an encoder whose weights are in a .safetensors file.")
    modules = folder / "modules.json"
    if not modules.exists():
        return
    with fitting(modules, "use another encoder"):
        kinds = [str(module["type"]) for module in json.loads(modules.read_text(encoding="utf-8"))]
    foreign = [kind for kind in kinds if not kind.startswith("sentence_transformers.")]
    if foreign:
        raise UserError(f"{modules} asks for {foreign[0]}, which is no part of sentence-transformers: use another one.")


def _digest(model: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
