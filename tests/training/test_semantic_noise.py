import pytest
import torch

from karat.data.datasets import load_dataset
from karat.data.settings import DataSettings, NoiseSettings
from karat.errors import UserError
from karat.settings.config import Config, TrainingSettings
from karat.training import semantic_noise
from karat.training.semantic_noise import LabellerSettings, cache_folder, semantic_labels
from karat.training.tasks import task_of

NOISE = NoiseSettings("semantic", fraction=0.05, labeller="small", labeller_epochs=8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KARAT_CACHE", str(tmp_path / "cache"))


def config(noise=NOISE, seed=0, **data):
    return Config(data=DataSettings(**data), noise=noise, seed=seed, training=TrainingSettings(device="cpu"))


def test_a_weak_network_labels_the_digits_and_its_labels_are_kept(monkeypatch):
    task = task_of(config())
    labels = task.labels
    assert 0 < labels.rate < 0.9
    assert labels.transition is None
    counts = labels.true.bincount(minlength=10)[:, None] * labels.realised_transition
    assert counts.diagonal().sum().item() == pytest.approx((1 - labels.rate) * len(labels.given))
    assert torch.equal(counts.sum(dim=0).round().long(), labels.given.bincount(minlength=10))
    assert len(list(cache_folder().rglob("*.npz"))) == 1

    monkeypatch.setattr(semantic_noise, "_trained", lambda *arguments: pytest.fail("trained again"))
    assert torch.equal(task_of(config()).labels.given, labels.given)


def test_labels_depend_on_the_seed_and_leave_the_global_generator_alone():
    train = load_dataset("wine").train
    before = torch.random.get_rng_state()
    first, second, other = (
        semantic_labels(train, 3, LabellerSettings(0.1, "mlp", 2, seed), device="cpu") for seed in (1, 1, 2)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_other_settings_are_other_files_and_vectors_are_labelled_by_an_mlp():
    wine = NoiseSettings("semantic", fraction=0.1, labeller_epochs=1)  # vgg-13, which takes images alone
    task_of(config(wine, name="wine"))
    task_of(config(wine, name="wine", limit=100))
    task_of(config(wine, seed=1, name="wine"))
    task_of(config(NoiseSettings("semantic", fraction=0.2, labeller_epochs=1), name="wine"))
    task_of(config(NoiseSettings("semantic", fraction=0.1, labeller_epochs=2), name="wine"))
    assert len(list(cache_folder().rglob("*.npz"))) == 5


def test_a_damaged_cache_is_made_again(caplog):
    wine = config(NoiseSettings("semantic", fraction=0.1, labeller_epochs=1), name="wine")
    given = task_of(wine).labels.given
    (file,) = cache_folder().rglob("*.npz")
    file.write_bytes(b"damaged")
    assert torch.equal(task_of(wine).labels.given, given)
    assert "The labels are made again" in caplog.text


def test_the_fraction_is_class_balanced():
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 20)
    chosen = semantic_noise._balanced(labels, 12, torch.Generator())
    assert labels[chosen].bincount().tolist() == [4, 4, 4]


def test_the_labeller_does_not_learn_the_trusted_examples(monkeypatch):
    """They were the same ones: labels were right wherever Karat knew that they were."""
    chosen: list[torch.Tensor] = []
    balanced = semantic_noise._balanced
    monkeypatch.setattr(semantic_noise, "_balanced", lambda *given: chosen.append(balanced(*given)) or chosen[-1])
    task = task_of(config(NoiseSettings("semantic", fraction=0.1, labeller="small", labeller_epochs=1)))
    learned = task.dataset.train.inputs[chosen[0]].flatten(1)
    shared = (learned[:, None] == task.trusted.inputs.flatten(1)).all(dim=2).any(dim=1)
    assert shared.float().mean() < 0.25  # 100 of 1,300 are trusted


def test_the_cache_has_a_home(monkeypatch, tmp_path):
    monkeypatch.delenv("KARAT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "karat"


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (NoiseSettings("semantic", fraction=0.0), "noise.fraction is 0.0: write a share above 0 and below 1"),
        (NoiseSettings("semantic", fraction=1.0), "noise.fraction is 1.0"),
        (NoiseSettings("semantic", labeller_epochs=0), "noise.labeller_epochs is 0: write 1 or more"),
        (NoiseSettings("semantic", labeller="vg-13"), "Unknown model 'vg-13'. Did you mean 'vgg-13'"),
    ],
)
def test_unusable_settings(noise, message):
    with pytest.raises(UserError, match=message):
        task_of(config(noise))
