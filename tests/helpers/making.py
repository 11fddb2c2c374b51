"""Small data to load: pictures, and tables that name them."""

import io
import tarfile

import numpy as np
import pandas as pd
from PIL import Image

RANDOM = np.random.default_rng(0)


def picture(height=16, width=16, channels=3):
    """Random pixels: no two pictures are the same."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(RANDOM.integers(0, 256, shape, dtype=np.uint8))


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_folder(root, counts, **options):
    """Write so many PNGs into each folder, such as {"train/cat": 3}."""
    for folder, count in counts.items():
        (root / folder).mkdir(parents=True)
        for number in range(count):
            picture(**options).save(root / folder / f"{number}.png")
    return str(root)


PARTS = {
    "train/cat": 4,
    "train/dog": 4,
    "trusted/cat": 1,
    "trusted/dog": 2,
    "test/cat": 2,
    "val/dog": 1,
}


def write_table(file, frame):
    """Write a table in the format of the file's ending."""
    if file.suffix == ".parquet":
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False, sep="\t" if file.suffix == ".tsv" else ",")
    return str(file)


def features(count=12):
    """A table of two features with labels, of which the first four are trusted and the last two for the test."""
    return pd.DataFrame(
        {
            "size": RANDOM.normal(5, 2, count),
            "colour": np.resize(["red", "blue", "green"], count),
            "label": np.resize(["no", "yes"], count),
            "trusted": np.arange(count) < 4,
            "split": np.where(np.arange(count) < count - 2, "train", "test"),
        }
    )


def write_tar(file, members):
    """Write a tar file of these members: text or bytes by name, or headers of another kind, such as links."""
    with tarfile.open(file, "w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            header = tarfile.TarInfo(name)
            content = content.encode() if isinstance(content, str) else content
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return str(file)


def tar_rows(labels, start=0, **options):
    """Members of a tar file with a picture of each label: `0.png` and `0.cls`, and so on from `start`."""
    numbered = list(enumerate(labels, start))
    images = {f"{number}.png": encoded(picture(**options)) for number, _ in numbered}
    return images | {f"{number}.cls": label for number, label in numbered}
