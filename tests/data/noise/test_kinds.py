"""Every kind of noise through the settings: the matrix it realises, and the settings that it refuses."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom

from karat.data.examples import Dataset, Examples
from karat.data.noise.kinds import KINDS, Clean, noise_of
from karat.data.settings import NoiseSettings
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
    data = dataset(curated=curated)
    return noise_of(noise).draw(Clean(data, data.rows, data.train), torch.Generator().manual_seed(seed))


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
        rate=0.0 if kind in ("none", "transition") else 0.4,
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


@pytest.mark.parametrize("ending", [".npy", ".csv"])
def test_a_matrix_from_a_file(tmp_path, ending):
    rows = np.full((CLASSES, CLASSES), 0.05) + 0.75 * np.eye(CLASSES)
    file = tmp_path / f"matrix{ending}"
    np.save(file, rows) if ending == ".npy" else np.savetxt(file, rows, delimiter=",")
    _, labels = draw(NoiseSettings("transition", matrix_file=file))
    torch.testing.assert_close(labels.transition, torch.from_numpy(rows))


def test_every_kind_is_described_and_every_setting_has_its_reader():
    named = NoiseSettings.__doc__.split("kind:")[1].split("rate:")[0]
    assert all(f'"{kind}"' in named for kind in KINDS)
    read = {field.name for kind in KINDS.values() for field in fields(kind)}
    assert {field.name for field in fields(NoiseSettings)} == {"kind", *read}


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (NoiseSettings("instanc"), "Unknown noise 'instanc'. Did you mean 'instance'"),
        (NoiseSettings(labels_column="worse_label"), "set noise.labels_file, too"),
        (NoiseSettings("open_set", rate=0.5), "needs foreign images: set noise.source"),
        (NoiseSettings("transition"), "needs a matrix: set noise.matrix_file to an .npy or .csv file"),
        (NoiseSettings("semantic", fraction=0.0), "noise.fraction is 0.0: write a share above 0 and below 1"),
        (NoiseSettings("semantic", labeller_epochs=0), "noise.labeller_epochs is 0: write 1 or more"),
    ],
)
def test_unusable_settings(noise, message):
    with pytest.raises(UserError, match=message):
        noise_of(noise)


GIVEN = {
    "rate": 0.5,
    "class_map": {0: 1},
    "matrix_file": Path("a.npy"),
    "labels_file": Path("a.csv"),
    "labels_column": "worse_label",
    "source": "cifar100",
    "source_path": Path("a"),
    "fraction": 0.1,
    "labeller": "mlp",
    "labeller_epochs": 3,
}
READ = {
    "none": {"labels_file", "labels_column"},
    "uniform": {"rate"},
    "symmetric": {"rate"},
    "asymmetric": {"rate", "class_map"},
    "transition": {"matrix_file"},
    "instance": {"rate"},
    "open_set": {"rate", "source", "source_path"},
    "semantic": {"fraction", "labeller", "labeller_epochs"},
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_that_a_kind_does_not_read_is_refused_with_those_that_do(kind, name):
    """A kind gets all that it reads and one setting more; the sentence names who reads that one."""
    noise = NoiseSettings(kind, **{read: GIVEN[read] for read in {*READ[kind], name}})
    if name in READ[kind]:
        assert getattr(noise_of(noise), name) == GIVEN[name]
        return
    with pytest.raises(UserError) as caught:
        noise_of(noise)
    readers = " or ".join(other for other in KINDS if name in READ[other])
    assert str(caught.value) == (
        f"Noise '{kind}' does not read noise.{name}: leave it out, or write noise.kind: {readers}."
    )


def test_semantic_noise_needs_a_labeller():
    with pytest.raises(UserError, match=r"needs a labeller: prepare the task with karat\.training\.tasks\.task_of"):
        draw(NoiseSettings("semantic"))
    data = dataset(per_class=1)
    chosen = torch.tensor([1, 3])
    clean = Clean(data, chosen, data.train.subset(chosen), labeller=lambda of: of.train.labels.flip(0))
    _, labels = noise_of(NoiseSettings("semantic")).draw(clean, torch.Generator())
    assert (labels.given.tolist(), labels.true.tolist()) == ([3, 1], [1, 3])
