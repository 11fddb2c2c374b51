"""The numbers of the default method that nobody sets: one frozen record in parts, each number with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AppearanceConstants:
    """How inputs are described without labels."""

    directions: int = 256  # principal directions that are kept of the features
    directions_of_texts: int = 512  # 6,000 texts, 40% uniform: 69.6% with 256, 70.3 with 512, 70.6 with 768, and slower
    length: float = 8.0  # of an example's features, in the mean over the examples
    sample: int = 5_000  # examples from which filters and directions are found
    chunk: int = 32  # images at once: their responses should fit into a processor's cache
    filters: int = 200  # whitened patches whose responses are the features of an image
    grid: int = 4  # cells a side over which responses are pooled
    largest_side: int = 32  # larger images are shrunk: a few pixels of a photograph say nothing of what it shows
    contrast: float = 0.1  # of the pixels' variance, added to that of a patch: flat patches are not blown up
    flattening: float = 0.1  # of the patches' mean variance, added to that of each direction before whitening
    threshold: float = 0.5  # responses below it count as none


@dataclass(frozen=True)
class NeighbourConstants:
    """How features are smoothed over neighbours."""

    amounts: tuple[float, ...] = (0.5, 0.95)  # two views of the inputs: with close neighbours, and the whole cluster
    count: int = 10  # neighbours of an example
    rounds: int = 50  # of walking; what is beyond them is forgotten
    most_inside: int = 20_000  # examples over which walks go; all others look up their neighbours among these
    chunk: int = 500  # examples that are compared with all others at once


@dataclass(frozen=True)
class TreeConstants:
    """How trees grow on short vectors."""

    longest_vector: int = 200  # features; longer inputs are not shown to trees
    fewest: int = 50  # noisy examples
    stages: tuple[int, ...] = (4, 8, 15, 25, 40, 60, 100, 160)  # trees a class; unseen labels tell which number
    leaves: int = 12
    leaves_of_all: int = 31  # of the trees on all parts, for new rows
    strength: float = 5.0  # that holds leaves to 0


@dataclass(frozen=True)
class RateConstants:
    """How a rate for each class is sampled."""

    grid: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # shares of wrong labels of a class
    sharpness: tuple[float, ...] = (0.71, 1.0, 1.41)  # of p
    floors: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    even: tuple[float, ...] = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)  # redrawn, of all labels
    clean: float = 0.5  # chance that a class has none, before any label is seen
    # What a rate for each class has against it, in nats: judges that know a rare class badly look like wrong labels.
    # Networks know better: with them each class may have wrong labels whatever the others have, log 2 less for each.
    against: float = 3.0
    rounds: int = 3  # in which it is found what wrong labels become
    most_others: int = 20_000  # noisy examples by which it is found
    forgotten: int = 2  # rounds over all classes before samples are kept
    samples: int = 12
    most_classes: int = 30  # time grows with their third power


@dataclass(frozen=True)
class VerdictConstants:
    """How the labels are judged in the end. Chosen on eight tables and on digits that no figure is reported on."""

    folds: int = 5  # parts of the examples, each judged by heads and trees that never saw its labels
    strengths: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)  # that hold heads to those of the trusted labels
    first_rate: float = 0.7  # share of labels that are redrawn from all classes in the first guess at T
    rounds: int = 3  # of heads, then T
    iterations: int = 8  # of L-BFGS in a round; 12 take a third longer and are no better (DECISIONS.md)
    most_learned: int = 50_000  # noisy examples that heads are fitted to
    most_numbers: int = 30_000_000  # and their logits by all heads together: fewer examples of many classes
    others: int = 5_000  # examples at once that no head is fitted to
    chunk: int = 1_000  # examples at once: their logits by all heads should fit into a processor's cache
    sample: int = 2_000  # noisy examples by which hypotheses are weighed
    noisy_count: int = 1_000  # labels that all noisy ones count for together; more where more are trusted
    full_prior: float = 1.0  # what a full matrix has against it, in nats: one for each class and two more
    directed_prior: float = 3.0  # and one rate whose wrong labels may become anything
    swap_prior: float = 10.0  # and a full one where it says that most labels of a class are wrong alike
    alike_prior: float = 6.0  # what wrong labels of classes that look alike have against them, in nats
    likenesses: tuple[float, ...] = (0.25, 0.5)  # powers of p from which they may be drawn
    blur_prior: float = 1.0  # and in nats for each one by which it tells classes apart less than one rate does
    sharpness: tuple[float, ...] = (0.5, 0.71, 1.0, 1.41, 2.0, 2.83)  # of the judges together
    sharpness_width: float = 0.5  # standard deviation of the prior of its logarithm
    floors: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.2)  # how often sure judges err
    caution_width: float = 0.35  # standard deviation of the logarithm of the power that claims are taken to
    safe_errors: float = 1.5  # standard errors by which it is on the safe side
    open_error: float = 0.04  # standard error of the noise rate, as a share of what judges leave open
    open_error_uneven: float = 0.2  # and where T is not one rate
    least_weight: float = 1e-3  # candidates that weigh less are left out
    trees: TreeConstants = TreeConstants()
    rates: RateConstants = RateConstants()


@dataclass(frozen=True)
class NetworkConstants:
    """How networks learn the verdict."""

    apart: float = 0.5  # share of the steps in which there are two, each of which learns one half of the examples
    # In a round of it: networks that know half of the labels each soon know all that these say, and long runs are for
    # the one that knows them all.
    most_steps_apart: int = 400
    most_epochs_apart: float = 2.0  # where these are more steps
    even: float = 0.2  # by how much T may differ from one rate, or else networks predict given labels
    rate_together: float = 0.7  # times the given learning rate, when one goes on alone
    own_share: float = 0.5  # of its own predictions in what each of the two learns, in the exponent
    own_share_together: float = 1.0  # and in what the one learns that goes on alone
    temperature: float = 0.7  # that sharpens what they learn
    temperature_together: float = 0.8  # and what the one learns
    trusted_share: float = 0.1  # trusted images in a batch, as a share of the noisy ones: they are seen often enough
    # What a trusted image counts in the end, in noisy ones; all of them together no more than a view.
    trusted_repeated: float = 10.0
    average_decay: float = 0.97  # what the network learns moves to the end: an average over more is behind
    # In the loss, beside the label of a weak view: that of a close-up, which shows less, and what features of both
    # should be like (contrast.py).
    close_up: float = 0.3
    contrast: float = 0.3
    contrast_temperature: float = 0.1
    contrast_by_class: float = 0.5  # share of it that is for images of the same class
    aligned: float = 0.5  # power by which a network's own predictions get the shares of the classes
    aligned_over: float = 0.02  # weight of a batch in the mean of predictions
    rate_of_vectors: float = 2.0  # posteriors are softer and steadier than labels


@dataclass(frozen=True)
class ClassifierConstants:
    """How the classifier of a run without training is fitted."""

    strength: float = 10.0  # that holds it to 0; CIFAR-10 features, 40% uniform: 1, 10, 100 have 74.4, 77.2, 76.0
    length: float = 8.0  # of an example's features, in the quadratic mean over the examples
    iterations: int = 60  # of L-BFGS
    chunk: int = 2_000  # examples at once
    parts: int = 5  # of the texts, each judged by a classifier of all terms that learned the others
    iterations_of_parts: int = 30
    memory_of_terms: int = 10  # steps that L-BFGS remembers, where a head has a million numbers


@dataclass(frozen=True)
class ScaleConstants:
    """How it is chosen whether columns of long vectors are standardised."""

    sample: int = 3_000  # noisy examples
    iterations: int = 30  # of L-BFGS
    # That holds the classifiers to 0: with less, what they learn by heart hides the difference. 3,000 texts of 20
    # classes, 80% noise, 768 directions: own scale gains 0.041 ± 0.004 nats a label with 100, 0.021 ± 0.009 with 10.
    strength: float = 100.0


@dataclass(frozen=True)
class Constants:
    """All of them."""

    least_mixup: float = 0.01  # of a Beta(a, a): below it nearly every factor is 0 or 1, and numpy's may be neither
    appearance: AppearanceConstants = AppearanceConstants()
    neighbours: NeighbourConstants = NeighbourConstants()
    verdict: VerdictConstants = VerdictConstants()
    network: NetworkConstants = NetworkConstants()
    classifier: ClassifierConstants = ClassifierConstants()
    scale: ScaleConstants = ScaleConstants()


CONSTANTS = Constants()
