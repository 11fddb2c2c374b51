"""What WebVision would take on 1, 8, 64 and 1,024 devices: reckoned, not run.

    python benchmarks/webvision.py [--measure]

Measured on one core with `--measure` (a few minutes), else taken from the constants below: how many plain steps a step
of `ieg` is worth with ResNet-50 at 224 pixels, and which share of it the views are. Published: how many
images a second a device trains, and how fast devices talk. Each device has 64 noisy and 64 trusted images of a batch. A
step takes the passes of its own images, the views of all images (every process makes them), and the messages: images of
the whole batch, three gradients, and those of BatchNorm, of which there are eleven for each layer.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from karat.algorithm.network import Network
from karat.data.modality import IMAGES
from karat.data.settings import AugmentationSettings
from karat.methods import settings_of
from karat.methods.ieg import ieg
from karat.methods.settings import MethodSettings
from karat.methods.step import Batch, Learner
from karat.methods.supervised import supervised
from karat.models import build_model

IMAGES_A_PASS, CLASSES, SIDE = 2_400_000, 1_000, 224
ON_A_DEVICE = 64  # noisy images, and as many trusted ones
PLAIN_STEPS, OF_VIEWS = 8.0, 0.002  # a step of ieg in plain steps; share of its time that views take
IMAGES_A_SECOND = 938  # NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, A100 80 GB, TF32, one GPU
WITHIN, BETWEEN = 300e9, 25e9  # bytes a second a device: NVLink 3 in one direction; one 200 Gb/s adapter for each
LATENCY = {"within": 30e-6, "between": 100e-6}  # seconds a short message: assumed
PARAMETERS, NORMS, NORM_MESSAGES, OTHER_MESSAGES, GRADIENTS = 25_557_032, 53, 11, 9, 3


def reckoned(
    devices: int, plain_steps: float, of_views: float, own: bool = False, own_images: bool = False
) -> dict[str, float]:
    """Return the seconds of a step by their parts, the hours of a pass, and GB of images that a device has to hold."""
    passes = ON_A_DEVICE * plain_steps / IMAGES_A_SECOND
    shared = 1 if own_images else devices
    speed = WITHIN if devices <= 8 else BETWEEN
    latency = LATENCY["within" if devices <= 8 else "between"]
    image_bytes = shared * 2 * ON_A_DEVICE * 3 * SIDE**2 * 4
    sent = (image_bytes * (not own_images) + GRADIENTS * 4 * PARAMETERS) * 2 * (devices - 1) / devices
    short = OTHER_MESSAGES + (GRADIENTS if own else NORM_MESSAGES * NORMS)
    messages = sent / speed + short * latency if devices > 1 else 0.0
    views = passes * of_views * shared
    step = passes + views + messages
    hours = IMAGES_A_PASS / (devices * ON_A_DEVICE) * step / 3600
    return {"passes": passes, "views": views, "messages": messages, "hours": hours, "images": image_bytes / 2**30}


def measured(rounds: int = 3, images: int = 4) -> tuple[float, float]:
    """Return how many plain steps a step of ieg is worth, and which share of it the views are, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = build_model("resnet-50", (3, SIDE, SIDE), CLASSES).to(memory_format=torch.channels_last).train()
    augmentation = IMAGES.augment((3, SIDE, SIDE), True, AugmentationSettings())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    learner = Learner(Network(module), optimizer, augmentation, CLASSES)
    labels, inputs = torch.arange(images), torch.rand(images, 3, SIDE, SIDE)
    batch = Batch(inputs, labels, inputs, labels, labels)
    generator, settings = torch.Generator().manual_seed(0), settings_of("ieg", MethodSettings())

    def views() -> None:
        weak = augmentation.weak(inputs, generator)
        augmentation.strong(weak, generator)
        augmentation.weak(inputs, generator)

    cases: list[Callable[[], object]] = [
        lambda: supervised(learner, batch, None, generator),
        lambda: ieg(learner, batch, settings, generator),
        views,
    ]
    rounds_of = [[_seconds(case) for case in cases] for _ in range(rounds + 1)][1:]
    plain, whole, of_views = (statistics.median(one) for one in zip(*rounds_of, strict=True))
    print(f"a plain step {plain:.2f} s, ieg {whole:.2f} s, views {of_views:.3f} s, {images} images, one thread")
    return whole / plain, of_views / whole


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    """Print a table for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    found = measured() if parser.parse_args().measure else (PLAIN_STEPS, OF_VIEWS)
    print(f"{found[0]:.1f} plain steps, views {100 * found[1]:.1f}%")
    ways = {"as it is": {}, "own statistics": {"own": True}, "own images, not built": {"own": True, "own_images": True}}
    for name, how in ways.items():
        for devices in (1, 8, 64, 1_024):
            one = reckoned(devices, *found, **how)
            print(
                f"{name} | {devices:,} | {one['passes']:.2f} | {one['views']:.2f} | {one['messages']:.2f} | "
                f"{one['hours']:.2f} | {one['images']:.2f}"
            )


if __name__ == "__main__":
    main()
