"""Which examples and which noise: the two sections of the config that the data need."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class DataSettings:
    """Which examples to train on.

    Attributes:
        name: your own data (docs/own_data.md): a folder of images, a .csv, .tsv or .parquet table, an .npz file, or a
            folder that the Hugging Face library saved; or digits, wine, breast_cancer, fashion_mnist, cifar10,
            cifar100, imagenet, webvision, webvision_mini, clothing1m, food101n.
        path: folder of the dataset's files, where it needs one; for a table, the folder that its paths start from.
        limit: keep so many train examples, class-balanced; null keeps all.
        trusted_per_class: how many examples of each class are trusted; the others are noisy. Data that name their
            trusted examples do not need it.
        image_size: side of the square to which lazily read images are brought; null is the dataset's own.
        download: fetch CIFAR through torchvision into path.
        validation_share: share of the noisy examples, with their noisy labels, held out to choose a checkpoint by.
        trusted: of your own data: more data of the same kind, all of whose labels you verified.
        test: of your own data: more data of the same kind, to measure the accuracy on.
        label_column: of a table: the column with the labels.
        path_column: of a table: the column with the paths of images, or with encoded images; null is path or image.
        id_column: of a table: the column with your names of the rows, if there is one.
        features: of a table: the columns to learn from; null is all that have no other meaning, or the images.
        missing: of a table: what to do about missing numbers: "error", or "impute" the median and note it.
        corrections: the labels.csv of `karat apply`, or the cleaned_labels.csv of a run: its labels and trusted
            examples take the place of those of the data.
        on_bad_image: what to do about images that cannot be read: "error" lists all of them, "skip" leaves them out
            (--on-bad-image skip says the same).
    """

    name: str = "digits"
    path: Path | None = None
    limit: int | None = None
    trusted_per_class: int = 10
    image_size: int | None = None
    download: bool = False
    validation_share: float = 0.0
    trusted: Path | None = None
    test: Path | None = None
    label_column: str = "label"
    path_column: str | None = None
    id_column: str = "id"
    features: list[str] | None = None
    missing: Literal["error", "impute"] = "error"
    on_bad_image: Literal["error", "skip"] = "error"
    corrections: Path | None = None


@dataclass(frozen=True)
class NoiseSettings:
    """Which noise to put on the noisy examples, for experiments.

    Attributes:
        kind: "none"; "uniform" redraws from all classes; "symmetric" excludes the true class; "asymmetric" follows a
            class map; "transition" follows a matrix from a file; "instance" depends on the example; "open_set" puts
            foreign images under the labels; "semantic" takes the predictions of a network trained on few labels.
        rate: share of the labels that are redrawn (open_set: of the images that are replaced), from 0 to 1.
        class_map: for asymmetric noise: which class becomes which, such as {9: 1}; null is the dataset's own (cifar10
            has one) or c -> c + 1.
        matrix_file: for transition noise: an .npy or .csv file with transition[true, given].
        labels_file: take the given labels of the noisy examples from this .npz, .csv or .pt file, such as the
            noisy_labels.csv of another run or CIFAR-N, instead of drawing them.
        labels_column: the column or array of labels_file with the given labels, such as worse_label; null is
            given_label.
        source: for open_set noise: where the foreign images come from: a dataset, an .npz file, a folder of images,
            imagenet (images or .npz files in source_path), or two of them joined with +.
        source_path: folder of the source's files, or with a folder of each source's name in it.
        fraction: for semantic noise: share of the train examples that the labeller is trained on, above 0 and below 1.
        labeller: for semantic noise: the network that labels, as in model; vectors are labelled by mlp.
        labeller_epochs: for semantic noise: passes of the labeller over its share.
    """

    kind: str = "none"
    rate: float = 0.0
    class_map: dict[int, int] | None = None
    matrix_file: Path | None = None
    labels_file: Path | None = None
    labels_column: str | None = None
    source: str | None = None
    source_path: Path | None = None
    fraction: float = 0.05
    labeller: str = "vgg-13"
    labeller_epochs: int = 60


def changed_settings(settings: DataSettings | NoiseSettings) -> list[str]:
    """Return the names of the settings that are not at their defaults: somebody wrote them.

    >>> changed_settings(NoiseSettings("uniform", rate=0.8))
    ['kind', 'rate']
    """
    usual = type(settings)()
    return [field.name for field in fields(settings) if getattr(settings, field.name) != getattr(usual, field.name)]
