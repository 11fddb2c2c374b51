"""Images a second from a folder, a CSV, a Parquet file and shards, beside the steps of network `fast` on the same core.

    python benchmarks/reading.py [--side 32] [--count 10000] [--rounds 7] [--images FILE.parquet]
    python benchmarks/reading.py --memory 200000

Each source has the same JPEGs. Rounds are interleaved: in each, every source reads ten batches of 100 in the order in
which training would draw them, and decodes them; nothing decoded is kept, and of row groups an eighth of all bytes, as
if there were many more. The step is one of plain training, batches of 100, at a quarter of the usual width. Processor
time of all threads together, files in the cache of the system. Images come from a column of bytes, or are clouds of
random colour with grain, of `side` pixels; those of more than 64 are read at 64.

`--memory` writes so many small images into tar files and says by how much the process grows (Linux).
"""

import argparse
import io
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from PIL import Image
from pyarrow import parquet

from karat import make_task, read_config
from karat.data import blocks
from karat.data.blocks import blocks_of
from karat.data.datasets import load_data
from karat.data.examples import from_arrays
from karat.data.images import ImageFiles
from karat.data.samplers import ShuffledStream
from karat.data.settings import DataSettings
from karat.data.sources.content import EncodedImages
from karat.data.sources.shards import read_shards
from karat.training.trainer import Trainer
from timing import interleaved_seconds, machine, peak_increase

BATCH, BATCHES, CLASSES = 100, 10, 10
SHARD, ROW_GROUP = 1_000, 100  # rows of a shard and of a row group
MODEL = "fast-16"


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--memory", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.memory is not None:
            memory(Path(folder), options.memory)
            return
        made = column(options.images, options.count) if options.images else clouds(options.side, options.count)
        speed(Path(folder), made, options.rounds)


def speed(folder: Path, images: list[bytes], rounds: int) -> None:
    """Print the images a second of all sources and of a step."""
    blocks.KEPT_BYTES = sum(map(len, images)) // 8
    side = min(64, Image.open(io.BytesIO(images[0])).width)
    variants: dict[str, Callable[[], object]] = {
        name: reader(source, side) for name, source in written(folder, images).items()
    }
    variants[f"a step of {MODEL}"] = stepper(side)
    seconds = interleaved_seconds(variants, rounds, time.process_time)
    print(machine())
    print(f"{len(images):,} JPEGs of {sum(map(len, images)) / len(images):,.0f} bytes, read at {side}x{side}\n")
    print("| | images a second | least to most |\n|---|---|---|")
    for name, found in seconds.items():
        rates = sorted(BATCH * BATCHES / one for one in found)
        print(f"| {name} | {statistics.median(rates):,.0f} | {rates[0]:,.0f} to {rates[-1]:,.0f} |")


def reader(source: str, side: int) -> Callable[[], None]:
    """Return what reads the next batches of a source."""
    inputs = load_data(DataSettings(source, image_size=side)).train.inputs
    images = inputs.images
    files = ImageFiles(images, side, cache_bytes=0)
    stream = ShuffledStream(torch.arange(len(images)), torch.Generator().manual_seed(0), blocks_of(images))

    def read() -> None:
        for _ in range(BATCHES):
            files[stream.next(BATCH)]

    return read


def stepper(side: int) -> Callable[[], None]:
    """Return what takes as many steps of plain training as batches are read, on images in memory."""
    pixels = np.random.default_rng(0).integers(0, 256, (1_000, side, side, 3), dtype=np.uint8)
    labels = np.arange(len(pixels)) % CLASSES
    names = tuple(map(str, range(CLASSES)))
    data = from_arrays("random", (pixels, labels), (pixels[:10], labels[:10]), names, flip=True)
    settings = {"method": "supervised", "model": MODEL, "training.batch_size": BATCH, "training.steps": 10_000}
    trainer = Trainer(read_config(settings), make_task(data))

    def step() -> None:
        for _ in range(BATCHES):
            trainer.train_step()

    return step


def written(folder: Path, images: list[bytes]) -> dict[str, str]:
    """Write the images as every source has them; return the names of these."""
    labels = [str(number % CLASSES) for number in range(len(images))]
    paths = [folder / "folder" / label / f"{number}.jpg" for number, label in enumerate(labels)]
    for path, image in zip(paths, images, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    pd.DataFrame({"path": paths, "label": labels}).to_csv(folder / "table.csv", index=False)
    parquet.write_table(pa.table({"image": images, "label": labels}), folder / "table.parquet")
    (folder / "parquet").mkdir()
    for start in range(0, len(images), SHARD):
        rows = slice(start, start + SHARD)
        shard = pa.table({"image": images[rows], "label": labels[rows]})
        parquet.write_table(shard, folder / "parquet" / f"{start:07}.parquet", row_group_size=ROW_GROUP)
    write_tars(folder / "tar", images, len(images))
    return {
        "folder": str(folder / "folder"),
        "CSV": str(folder / "table.csv"),
        "Parquet, one row group": str(folder / "table.parquet"),
        "shards, tar": str(folder / "tar"),
        "shards, Parquet": str(folder / "parquet"),
    }


def write_tars(folder: Path, images: list[bytes], count: int) -> None:
    """Write so many images, no two the same, into tar files; one that comes again has its number behind its end."""
    folder.mkdir()
    for start in range(0, count, 10 * SHARD):
        with tarfile.open(folder / f"{start:07}.tar", "w") as archive:
            for number in range(start, min(count, start + 10 * SHARD)):
                again = b"" if number < len(images) else b"%d" % number
                add(archive, f"{number:07}.jpg", images[number % len(images)] + again)
                add(archive, f"{number:07}.cls", b"%d" % (number % CLASSES))


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Put a file into a tar file."""
    header = tarfile.TarInfo(name)
    header.size = len(content)
    archive.addfile(header, io.BytesIO(content))


def column(file: Path, count: int) -> list[bytes]:
    """Return images of a Parquet file, as JPEGs."""
    cells = parquet.read_table(file).slice(0, count).to_pandas()
    found = next(cells[name] for name in cells if not np.issubdtype(cells[name].dtype, np.number))
    return [jpeg(Image.open(io.BytesIO(cell["bytes"] if isinstance(cell, dict) else cell))) for cell in found]


def clouds(side: int, count: int) -> list[bytes]:
    """Return random images that JPEG packs about as well as photographs."""
    random = np.random.default_rng(0)
    made = []
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
        grainy = smooth + random.normal(0, 6, smooth.shape)
        made.append(jpeg(Image.fromarray(grainy.clip(0, 255).astype(np.uint8))))
    return made


def jpeg(image: Image.Image) -> bytes:
    """Return an image as JPEG."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def memory(folder: Path, count: int) -> None:
    """Print by how much the process grows while small images in tar files are listed, and while all are read."""
    write_tars(folder / "tar", clouds(32, 1_000), count)
    data = DataSettings(str(folder / "tar"))
    stored = sum(file.stat().st_size for file in (folder / "tar").iterdir())
    found = []
    print("| | MB |\n|---|---|")
    print(f"| tar files of {count:,} images | {stored / 2**20:,.0f} |")
    grown = peak_increase(lambda: found.append(read_shards(data)))
    print(f"| listed: names, labels, places | {grown / 2**20:,.0f} |")
    content = found[0].content
    assert isinstance(content, EncodedImages)
    files = ImageFiles(content.images, 32, cache_bytes=0)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))

    def read() -> None:
        for rows in order.split(BATCH):
            files[rows]

    print(f"| and while all are read, shuffled | {peak_increase(read) / 2**20:,.0f} |")
    grown = peak_increase(lambda: load_data(data))
    print(f"| a dataset as training has it: listed, checked, decoded ones kept up to 2 GB | {grown / 2**20:,.0f} |")


if __name__ == "__main__":
    main()
