"""Which examples and which noise: the two sections of the config that the data need."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from karat.errors import UserError

DRAWN_PER_CLASS = 10  # trusted examples of a benchmark


@dataclass(frozen=True)
class DataSettings:
    """Which examples to train on.

    Attributes:
        name: your own data (docs/own_data.md): a folder of images or text files, a .csv, .tsv, .jsonl or
            .parquet table, an .npz file, shards (tar or Parquet files in a folder, under a pattern or at an address),
            or a folder that the Hugging Face library saved; or digits, wine, breast_cancer, fashion_mnist, cifar10,
            cifar100, imagenet, webvision, webvision_mini, clothing1m, food101n.
        path: folder of the dataset's files, where it needs one; for a table, the folder that its paths start from.
        limit: keep so many train examples, class-balanced; null keeps all.
        trusted_per_class: how many examples of each class are drawn at random and trusted, where the data name no
            trusted ones; null: 10 of a benchmark, whose labels are right, and none of your own data.
        image_size: side of the square to which lazily read images are brought; null is the dataset's own.
        download: fetch what is not on this machine: CIFAR through torchvision into path, the encoder of texts, the
            weights of a pretrained network.
        cache: folder in which the features of a pretrained network are kept for later runs; null is karat/features in
            ~/.cache, or in the folder that the variable KARAT_CACHE names.
        validation_share: share of the noisy examples, with their noisy labels, held out to choose a checkpoint by.
        trusted: of your own data: more data of the same kind, all of whose labels you verified.
        test: of your own data: more data of the same kind, to measure the accuracy on.
        label_column: of a table: the column with the labels.
        path_column: of a table: the column with the paths of images, or with encoded images; null is path or image.
        text_column: of a table: the column with texts; null is text, where there are no images.
        encoder: of texts: "tfidf", which learns from the texts alone, or the folder or name of a model for
            sentence-transformers (docs/own_data.md); download fetches one that is not on this machine.
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
    trusted_per_class: int | None = None
    image_size: int | None = None
    download: bool = False
    cache: Path | None = None
    validation_share: float = 0.0
    trusted: str | Path | None = None
    test: str | Path | None = None
    label_column: str = "label"
    path_column: str | None = None
    text_column: str | None = None
    encoder: str = "tfidf"
    id_column: str = "id"
    features: list[str] | None = None
    missing: Literal["error", "impute"] = "error"
    on_bad_image: Literal["error", "skip"] = "error"
    corrections: Path | None = None

    @property
    def title(self) -> str:
        """Return a short name of the data, fit for a folder.

        >>> DataSettings("s3://bucket/train-*.tar").title, DataSettings("mine.csv.gz").title
        ('train', 'mine')
        """
        return re.sub(r"\W*[*?\[{].*", "", Path(self.name).resolve().name.split(".")[0]) or "data"

    def drawn_per_class(self, curated: bool) -> int:
        """Return how many examples of each class are drawn and trusted; `curated`: all labels are known to be right."""
        if self.trusted_per_class is not None:
            return self.trusted_per_class
        return DRAWN_PER_CLASS if curated else 0


@dataclass(frozen=True)
class DataForNetwork(DataSettings):
    """The same for a network that has a resolution of its own, to which photographs are brought where nobody says.

    Attributes:
        photographs: side of the square; small images of one common size stay as they are.
    """

    photographs: int | None = None


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


@dataclass(frozen=True)
class AugmentationSettings:
    """How views are made.

    Attributes:
        policy: the first part of the strong view: "randaugment", "autoaugment" (CIFAR's learned policy) or "none".
        magnitude: strength of RandAugment, above 0 and below 30.
        crop: how far images are shifted at most, as a share of their size (1/16: 2 pixels of 32), one pixel at least;
            what is shifted out is seen again inside. 0 shifts nothing.
        cutout: side of the square that strong views lose, as a share of the image's (1/2: 16 pixels of 32).
        flip: mirror images; null does it where the dataset says that a mirrored image means the same.
        prediction_views: of which views the mean prediction is taken: "plain" (the image alone), "mirrored" (and its
            mirror image), "shifted" (and shifted by a pixel to two sides), "mirrored_and_shifted"; null is mirrored
            where images are mirrored in training, else plain.
        feature_dropout: share of a vector's features that a strong view loses (set to the mean); the weak view
            loses none.
        feature_noise: standard deviation of the noise on a vector's standardised features; a tenth of it in the
            weak view.
    """

    policy: Literal["randaugment", "autoaugment", "none"] = "randaugment"
    magnitude: int = 10
    crop: float = 0.0625
    cutout: float = 0.5
    flip: bool | None = None
    prediction_views: Literal["plain", "mirrored", "shifted", "mirrored_and_shifted"] | None = None
    feature_dropout: float = 0.4
    feature_noise: float = 0.1

    def __post_init__(self) -> None:
        for name in ("crop", "cutout", "feature_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"augmentation.{name} is {getattr(self, name)}: write a share of at least 0 and below 1."
                )
        if not 0 < self.magnitude < 30:
            raise UserError(f"augmentation.magnitude is {self.magnitude}: write a number from 1 to 29.")
        if self.feature_noise < 0:
            raise UserError(f"augmentation.feature_noise is {self.feature_noise}: write 0 or more.")

    def mirrors(self, by_dataset: bool) -> bool:
        """Return whether images are mirrored, where the dataset says whether that changes what they mean."""
        return by_dataset if self.flip is None else self.flip

    def views_at_prediction(self, by_dataset: bool) -> str:
        """Return the views of an image whose mean prediction is taken."""
        return self.prediction_views or ("mirrored" if self.mirrors(by_dataset) else "plain")


def changed_settings(settings: DataSettings | NoiseSettings) -> list[str]:
    """Return the names of the settings that are not at their defaults: somebody wrote them.

    >>> changed_settings(NoiseSettings("uniform", rate=0.8))
    ['kind', 'rate']
    """
    usual = type(settings)()
    return [field.name for field in fields(settings) if getattr(settings, field.name) != getattr(usual, field.name)]
