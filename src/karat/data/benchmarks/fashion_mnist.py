"""Fashion-MNIST from its four idx files."""

from pathlib import Path

from karat.data.benchmarks.array_files import read_idx
from karat.data.examples import Dataset, Request, from_arrays
from karat.data.readers import Array
from karat.files.required import require

FASHION_MNIST_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # Debian's package dataset-fashion-mnist
FASHION_MNIST_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def fashion_mnist(request: Request) -> Dataset:
    """Load 60,000 train and 10,000 test images of clothes, 28x28 and grey."""
    source = request.folder or FASHION_MNIST_FOLDER

    def read(name: str) -> Array:
        if (source / name).is_file():
            return read_idx(source / name)
        require(
            source / f"{name}.gz",
            "install the Debian package dataset-fashion-mnist, "
            "or copy the file there from github.com/zalandoresearch/fashion-mnist",
        )
        return read_idx(source / f"{name}.gz")

    train = read("train-images-idx3-ubyte"), read("train-labels-idx1-ubyte")
    test = read("t10k-images-idx3-ubyte"), read("t10k-labels-idx1-ubyte")
    return from_arrays("fashion_mnist", train, test, FASHION_MNIST_CLASSES, flip=True)
