"""Networks of timm with the weights that somebody trained: where these are found, and how they become features.

A network is named by `timm:NAME+pretrained` or `hf-hub:REPOSITORY`, whose weights timm keeps in its cache, or by NAME
and a file of weights. Nothing is fetched unless that is asked for, and no file may run code.
"""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from karat.errors import UserError
from karat.files.json_files import read_json
from karat.files.weights import read_foreign_weights
from karat.models.timm_networks import (
    PRETRAINED,
    PretrainedInput,
    create_network,
    first_line,
    is_timm,
    name_in_timm,
    near_timm_names,
)

HUB = "hf-hub:"
DIGEST = 16  # bytes of a hash of weights
WEIGHT_FILES = ("model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin")
_NO_WEIGHTS = ("num_batches_tracked",)  # counters, which older files lack and nobody reads


@dataclass(frozen=True)
class Pretrained:
    """A network of timm as it was trained: its scale, its resolution, and which weights it has.

    `architecture` and `options` make the network, `mean` and `std` are those of its inputs, `size` is the side of the
    images that it sees, `weights` what people call its weights, `digest` a hash of them.
    """

    architecture: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    weights: str
    digest: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for schema.json."""
        lists = {"mean": list(self.mean), "std": list(self.std), "options": dict(self.options)}
        return {**self.__dict__, **lists}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Pretrained":
        """Return what `to_dict` wrote."""
        return cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})


def is_pretrained(model: str, weights: Path | None) -> bool:
    """Tell whether a network by this name begins with weights that somebody trained.

    >>> is_pretrained("resnet18", None), is_pretrained("resnet18+pretrained", None), is_pretrained("auto", Path("a.pt"))
    (False, True, True)
    """
    return weights is not None or model.endswith(PRETRAINED) or model.startswith(HUB)


def describe(model: str, weights: Path | None, *, download: bool = False) -> tuple[Pretrained, Path]:
    """Find what a name stands for, and the file of its weights; only with `download` a missing one is fetched."""
    name = model.removesuffix(PRETRAINED)
    if name == "auto":
        raise UserError(f"--weights {weights} needs the network that they belong to: write --model timm:NAME, too.")
    if weights is not None and name != model:
        raise UserError(f"There are {model} and --weights {weights}: leave {PRETRAINED} or --weights out.")
    if name.startswith(HUB):
        if weights is not None:
            raise UserError(f"There are {model} and --weights {weights}: leave one of the two out.")
        return _of_hub(name.removeprefix(HUB), download)
    name = name_in_timm(model)
    _check_name(name, model)
    import timm

    settings = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if settings is None or (weights is None and not (settings.hf_hub_id or settings.url)):
        raise UserError(
            f"timm has no pretrained weights of '{name}': give a file with --weights, or train it from the start, "
            f"without '{PRETRAINED}'."
        )
    found = Pretrained(
        name, tuple(settings.mean), tuple(settings.std), min(settings.input_size[1:]), str(weights or name)
    )
    return found, weights or _cached(name, settings.hf_hub_id, settings.url, download)


def _check_name(name: str, model: str) -> None:
    if is_timm(name):
        return
    near = ", ".join(near_timm_names(name))
    hint = f" timm has {near}." if near else ""
    raise UserError(
        f"'{model}' is not a network of timm, and only these have pretrained weights.{hint} Choose one of timm's, "
        "such as timm:resnet50 (docs/networks.md)."
    )


def at_hand(names: tuple[str, ...]) -> str | None:
    """Return the first of these networks of timm whose weights are in the cache of this machine; nothing is fetched."""
    if not _anything_cached():
        return None
    import timm  # which takes seconds

    for name in names:
        settings = timm.get_pretrained_cfg(name, allow_unregistered=True)
        if settings is not None and _in_cache(settings.hf_hub_id, settings.url) is not None:
            return name
    return None


def build_pretrained(source: Pretrained, classes: int) -> "PretrainedClassifier":
    """Build the network with a new head, with any weights."""
    try:
        backbone = create_network(
            source.architecture, (source.size, source.size), {**source.options, "num_classes": 0, "in_chans": 3}
        )
        with torch.no_grad():
            found = backbone.eval()(torch.zeros(1, 3, source.size, source.size))
        if found.ndim != 2:
            raise ValueError(f"it returns {tuple(found.shape[1:])} numbers for an image, and no vector")
    except Exception as error:  # timm's networks complain in many ways of a size that they cannot take
        raise UserError(
            f"Network '{source.architecture}' does not take images of {source.size} pixels ({first_line(error)}): "
            "choose another --data.image_size, or another network."
        ) from error
    backbone.train()
    scaled = PretrainedInput(backbone, source.mean, source.std)
    return PretrainedClassifier(scaled, source.size, found.shape[1], classes)


def load_pretrained(source: Pretrained, file: Path, classes: int) -> tuple["PretrainedClassifier", Pretrained]:
    """Build the network with the weights of a file and a new head; return it, and the source with their hash."""
    model = build_pretrained(source, classes)
    load_backbone(model.backbone.network, file, source.architecture)
    return model, replace(source, digest=digest_of(model.backbone.network))


def load_backbone(network: nn.Module, file: Path, architecture: str) -> None:
    """Load the weights of a file into a network of timm, in place; the head of either is left out.

    Everything but the head must be in the file, with its shape, and nothing else: a deeper network of the same family
    has all tensors of a shallower one.
    """
    given = read_foreign_weights(file)
    heads = _heads(network)
    own = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith(heads)}
    if not own.keys() <= given.keys():
        given = _renamed_by_timm(given, network)
    given = {name: tensor for name, tensor in given.items() if not name.startswith(heads)}
    missing = [name for name in own if name not in given and not name.endswith(_NO_WEIGHTS)]
    unknown = [name for name in given if name not in own]
    other = [name for name in own if name in given and given[name].shape != own[name].shape]
    differences = [
        f"{len(names):,} tensors {what}, first {names[0]}{shapes}"
        for names, what, shapes in (
            (missing, "are missing", ""),
            (unknown, "are not of this network", ""),
            (other, "have another shape", _shapes(other, given, own)),
        )
        if names
    ]
    if differences:
        raise UserError(
            f"The weights in {file} are not those of '{architecture}' ({'; '.join(differences)}): name the network "
            "that they were saved from with --model."
        )
    if not all(tensor.isfinite().all() for tensor in given.values() if tensor.is_floating_point()):
        raise UserError(f"The weights in {file} hold numbers that are not finite: get a fresh copy of it.")
    network.load_state_dict(given, strict=False)


def digest_of(network: nn.Module) -> str:
    """Return a hash of all tensors of a network, with their names."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class PretrainedClassifier(nn.Module):
    """A pretrained network without its head, at its own resolution and scale, and a linear head on its features.

    Images in [-1, 1] of another size are resized until they fill the square of `size`; what sticks out is cut off.
    """

    def __init__(self, backbone: PretrainedInput, size: int, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.size = size
        self.head = nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:
        """Return one row of features for every image."""
        return self.backbone(fitted_square(images, self.size))

    def forward(self, images: Tensor) -> Tensor:
        """Return one row of logits for every image."""
        return self.head(self.features(images))


def fitted_square(images: Tensor, size: int) -> Tensor:
    """Resize images so that they fill a square of this side, and cut off what sticks out.

    >>> fitted_square(torch.zeros(1, 3, 20, 32), 40).shape
    torch.Size([1, 3, 40, 40])
    """
    height, width = images.shape[2:]
    if (height, width) == (size, size):
        return images
    ratio = size / min(height, width)
    tall, wide = max(size, round(height * ratio)), max(size, round(width * ratio))
    filled = F.interpolate(images, (tall, wide), mode="bilinear", antialias=min(height, width) > size)
    top, left = (tall - size) // 2, (wide - size) // 2
    return filled[:, :, top : top + size, left : left + size]


def _heads(network: nn.Module) -> tuple[str, ...]:
    """Return how the names of the tensors of a network's own head begin."""
    settings: Any = getattr(network, "pretrained_cfg", None) or {}
    heads = settings.get("classifier") or ()
    return tuple(f"{head}." for head in ((heads,) if isinstance(heads, str) else heads))


def _renamed_by_timm(given: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Return weights as their authors saved them under timm's names, where timm knows how; else as they are."""
    rename = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if rename is None:
        return given
    try:
        found = rename(dict(given), network)
    except Exception:  # of another network: the comparison of the names says so
        return given
    whole = isinstance(found, Mapping) and all(isinstance(tensor, Tensor) for tensor in found.values())
    return dict(found) if whole else given


def _shapes(names: list[str], given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    return f" ({tuple(given[names[0]].shape)} instead of {tuple(own[names[0]].shape)})" if names else ""


def _anything_cached() -> bool:
    """Tell whether timm has ever kept weights on this machine."""
    from huggingface_hub.constants import HF_HUB_CACHE

    old = Path(torch.hub.get_dir()) / "checkpoints"
    return any(Path(HF_HUB_CACHE).glob("models--timm--*")) or (old.is_dir() and any(old.iterdir()))


def _in_cache(repository: str | None, url: str | None) -> Path | None:
    """Return the file of weights in the cache of this machine; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    for file in WEIGHT_FILES if repository else ():
        found = try_to_load_from_cache(str(repository), file)
        if isinstance(found, str):
            return Path(found)
    if url:  # where timm kept weights before it had a hub
        old = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
        if old.is_file():
            return old
    return None


def _cached(name: str, repository: str | None, url: str | None, download: bool) -> Path:
    found = _in_cache(repository, url)
    if found is not None:
        return found
    if not download:
        raise UserError(
            f"The pretrained weights of '{name}' are not on this machine: fetch them with --data.download true, or "
            "give a file of them with --weights."
        )
    if not repository:
        raise UserError(f"The weights of '{name}' are not in a hub: get {url}, and give the file with --weights.")
    return _fetched(name, repository, WEIGHT_FILES)


def _fetched(name: str, repository: str, files: tuple[str, ...]) -> Path:
    """Fetch the first of these files that a repository has."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    reason = "it has no such file"
    for file in files:
        try:
            return Path(hf_hub_download(repository, file))
        except EntryNotFoundError:
            continue
        except Exception as error:  # of the network or the file system
            reason = first_line(error)
            break
    raise UserError(
        f"{files[0]} of '{name}' cannot be fetched ({reason}): connect to the internet for the first time, or give a "
        "file of weights with --weights."
    )


def _of_hub(repository: str, download: bool) -> tuple[Pretrained, Path]:
    """Return what the config of a repository describes, and its weights."""
    from huggingface_hub import try_to_load_from_cache

    name = f"{HUB}{repository}"
    try:
        cached = try_to_load_from_cache(repository, "config.json")
    except ValueError as error:  # no name of a repository
        raise UserError(f"{name} names no repository ({first_line(error)}): write {HUB}OWNER/NAME.") from error
    if not isinstance(cached, str) and not download:
        raise UserError(f"{name} is not on this machine: fetch it with --data.download true.")
    path = Path(cached) if isinstance(cached, str) else _fetched(name, repository, ("config.json",))
    values = read_json(path)
    try:
        architecture, settings = str(values["architecture"]), dict(values.get("pretrained_cfg", values))
        mean, std = (tuple(map(float, settings[part])) for part in ("mean", "std"))
        size, options = int(min(settings["input_size"][1:])), dict(values.get("model_args") or {})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name} is not a network of timm ({error!r} is missing or wrong in config.json).") from error
    _check_name(architecture, name)
    return Pretrained(architecture, mean, std, size, name, options=options), _cached(name, repository, None, download)
