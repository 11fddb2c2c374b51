"""Every kind of noise through the settings: the matrix it realises, and the settings that it refuses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom

from karat.data.examples import Dataset, Examples
from karat.data.noise.kinds import KINDS, Clean, check_noise, draw_noise
from karat.data.settings import DataSettings, NoiseSettings
from karat.errors import UserError

CLASSES = 5


def dataset(per_class=800, curated=True):
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(CLASSES).repeat(per_class)
    inputs = torch.rand(len(labels), 1, 4, 4, generator=source) * 2 - 1
    examples = Examples(inputs, labels)
    names = tuple("abcde")
    return Dataset("synthetic", examples, examples, names, False, torch.arange(len(labels)), curated)


def draw(noise, seed=0, curated=True):
    check_noise(noise)
    data = dataset(curated=curated)
    clean = Clean(data, data.rows, data.train)
    return draw_noise(DataSettings(), noise, clean, torch.Generator().manual_seed(seed), None)


def matrix_file(folder):
    rows = torch.rand(CLASSES, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64) ** 3
    np.save(folder / "matrix.npy", (rows / rows.sum(dim=1, keepdim=True)).numpy())
    return folder / "matrix.npy"


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["none", "uniform", "symmetric", "asymmetric", "transition", "instance"])
def test_the_realised_matrix_is_the_asked_one_within_sampling_error(tmp_path, kind, seed):
    """Each entry of 800 draws is binomial; a tail below 1e-8 is refused, 450 entries fail once in a million runs.

    Of instance noise the draws have chances p_i of their own. Their sum has lighter tails than a binomial with the
    mean of the p_i, beyond one of the mean (Hoeffding 1956).
    """
    noise = NoiseSettings(
        kind,
        rate=0.0 if kind == "none" else 0.4,
        matrix_file=matrix_file(tmp_path) if kind == "transition" else None,
    )
    inputs, labels = draw(noise, seed)
    asked, counts = labels.transition.numpy(), (labels.realised_transition * 800).round().numpy()
    assert (binom.cdf(counts, 800, asked) > 1e-8).all()
    assert (binom.sf(counts - 1, 800, asked) > 1e-8).all()
    assert torch.equal(inputs, dataset().train.inputs)
    assert torch.equal(labels.given, draw(noise, seed)[1].given)


def test_labels_of_a_user_are_not_known_to_be_true():
    assert draw(NoiseSettings(), curated=False)[1].true is None
    assert draw(NoiseSettings(), curated=True)[1].rate == 0


@pytest.mark.parametrize("curated", [True, False])
def test_labels_by_class_name_without_an_index_take_their_truth_from_a_curated_dataset(tmp_path, curated):
    file = tmp_path / "human.csv"
    file.write_text("\n".join(["worse_label", *"bbcde" * 800]))
    _, labels = draw(NoiseSettings(labels_file=file, labels_column="worse_label"), curated=curated)
    assert labels.given[:5].tolist() == [1, 1, 2, 3, 4]
    assert labels.rate == (0.2 if curated else None)
    file.write_text("worse_label\nb\n")
    with pytest.raises(UserError, match="has 1 labels and no index, and the data have 4000 train examples"):
        draw(NoiseSettings(labels_file=file, labels_column="worse_label"))


def test_the_table_lists_every_kind():
    named = NoiseSettings.__doc__.split("kind:")[1].split("rate:")[0]
    assert all(f'"{kind}"' in named for kind in KINDS)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (NoiseSettings("instanc"), "Unknown noise 'instanc'. Did you mean 'instance'"),
        (NoiseSettings(rate=0.5), "no noise is chosen: write noise.kind: uniform"),
        (NoiseSettings("semantic", rate=0.5), "leave noise.rate out, and set noise.fraction"),
        (NoiseSettings("uniform", labels_file=Path("a.csv")), "exclude each other"),
        (NoiseSettings(labels_column="worse_label"), "set noise.labels_file, too"),
        (NoiseSettings("open_set", rate=0.5), "needs foreign images: set noise.source"),
        (NoiseSettings("uniform", source="cifar100"), "'uniform' takes no source: leave noise.source out"),
        (NoiseSettings("instance", class_map={0: 1}), "takes no class map"),
        (NoiseSettings("instance", matrix_file=Path("a.npy")), "takes no matrix"),
    ],
)
def test_misplaced_settings(noise, message):
    with pytest.raises(UserError, match=message):
        check_noise(noise)


def test_semantic_noise_needs_a_labeller():
    with pytest.raises(UserError, match=r"needs a labeller: prepare the task with karat\.training\.run\.task_of"):
        draw(NoiseSettings("semantic"))
    data = dataset(per_class=1)
    clean = Clean(data, torch.tensor([1, 3]), data.train.subset(torch.tensor([1, 3])))
    _, labels = draw_noise(
        DataSettings(), NoiseSettings("semantic"), clean, torch.Generator(), lambda of: of.train.labels.flip(0)
    )
    assert (labels.given.tolist(), labels.true.tolist()) == ([3, 1], [1, 3])
