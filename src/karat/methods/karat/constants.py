"""The numbers of the default method that nobody sets: one frozen record in parts, each number with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AppearanceConstants:
    """How inputs are described without labels.

    Attributes:
        directions: principal directions that are kept of the features.
        length: of an example's features, in the mean over the examples.
        sample: examples from which filters and directions are found.
        chunk: images at once; their responses should fit into a processor's cache.
        filters: whitened patches whose responses are the features of an image.
        grid: cells a side over which responses are pooled.
        largest_side: larger images are shrunk; patches of a few pixels of a photograph say nothing of what it shows.
        contrast: of the pixels' variance, added to that of a patch; flat patches are not blown up.
        flattening: of the patches' mean variance, added to the variance of each direction before whitening.
        threshold: responses below it count as none.
    """

    directions: int = 256
    length: float = 8.0
    sample: int = 5_000
    chunk: int = 32
    filters: int = 200
    grid: int = 4
    largest_side: int = 32
    contrast: float = 0.1
    flattening: float = 0.1
    threshold: float = 0.5


@dataclass(frozen=True)
class NeighbourConstants:
    """How features are smoothed over neighbours.

    Attributes:
        amounts: two views of the inputs, with close neighbours and with the whole cluster.
        count: neighbours of an example.
        rounds: of walking; what is beyond them is forgotten.
        most_inside: examples over which walks go; all others look up their neighbours among these.
        chunk: examples that are compared with all others at once.
    """

    amounts: tuple[float, ...] = (0.5, 0.95)
    count: int = 10
    rounds: int = 50
    most_inside: int = 20_000
    chunk: int = 500


@dataclass(frozen=True)
class MatrixConstants:
    """What is believed of the noise matrix T before a label is seen.

    Attributes:
        first_rate: share of labels that are redrawn from all classes in the first guess at T.
        smoothing: labels that T has seen of every pair before the first real one.
        doubt: by how much the log-likelihood of the labels must rise before a surprising T is believed.
    """

    first_rate: float = 0.7
    smoothing: float = 0.1
    doubt: float = 10.0


@dataclass(frozen=True)
class JudgeConstants:
    """How a judge's heads are fitted.

    Attributes:
        folds: parts of the examples, each judged by a head that never saw its labels.
        strengths: that hold heads to the last layer of a network.
        strengths_untrained: that hold heads to those of the trusted labels, on features that know no label.
        rounds: of heads, then T and sharpness.
        most_numbers: logits of all heads at once; where there would be more, heads are fitted on fewer examples.
    """

    folds: int = 5
    strengths: tuple[float, ...] = (3.0, 30.0, 300.0)
    strengths_untrained: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    rounds: int = 4
    most_numbers: int = 30_000_000


@dataclass(frozen=True)
class LabelModelConstants:
    """How judges are weighed.

    Attributes:
        rounds: of sharpness, then T.
        width: standard deviation of the prior of a judge's log sharpness.
    """

    rounds: int = 10
    width: float = 0.3


@dataclass(frozen=True)
class VerdictConstants:
    """How the labels are judged in the end.

    Attributes:
        folds: parts of the examples, each judged by heads and trees that never saw its labels.
        strengths: that hold heads to those of the trusted labels.
        first_rate: share of labels that are redrawn from all classes in the first guess at T.
        rounds: of heads, then T.
        iterations: of L-BFGS in a round.
        sample: noisy examples by which hypotheses are weighed.
        noisy_count: as many labels as the noisy ones count for together, or as many as there are trusted ones.
        full_prior: what a full matrix has against it, in nats for each class but one.
        sharpness: of the judges together.
        sharpness_width: standard deviation of the prior of its logarithm.
        floors: how often sure judges err.
        least_weight: candidates that weigh less are left out.
        longest_vector: inputs with more features are not shown to trees.
        tree_stages: numbers of trees; the one by which unseen labels are likeliest is taken.
        tree_leaves: of a tree.
        tree_strength: that holds leaves to 0.
    """

    folds: int = 5
    strengths: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    first_rate: float = 0.7
    rounds: int = 3
    iterations: int = 12
    sample: int = 2_000
    noisy_count: int = 100
    full_prior: float = 1.0
    sharpness: tuple[float, ...] = (0.5, 0.71, 1.0, 1.41, 2.0, 2.83)
    sharpness_width: float = 0.5
    floors: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    least_weight: float = 1e-3
    longest_vector: int = 200
    tree_stages: tuple[int, ...] = (4, 8, 15, 25, 40, 60)
    tree_leaves: int = 12
    tree_strength: float = 5.0


@dataclass(frozen=True)
class Constants:
    """All of them.

    Attributes:
        rate: times the given learning rate; posteriors are softer and steadier than labels.
        least_mixup: a of a Beta(a, a); below it nearly every factor is 0 or 1, and numpy's may be neither.
        appearance: features of the inputs.
        neighbours: their smoothing.
        matrix: the noise matrix.
        judge: heads on features.
        label_model: all judges together.
        verdict: what is said of the labels in the end.
    """

    rate: float = 2.0
    least_mixup: float = 0.01
    appearance: AppearanceConstants = AppearanceConstants()
    neighbours: NeighbourConstants = NeighbourConstants()
    matrix: MatrixConstants = MatrixConstants()
    judge: JudgeConstants = JudgeConstants()
    label_model: LabelModelConstants = LabelModelConstants()
    verdict: VerdictConstants = VerdictConstants()


CONSTANTS = Constants()
