"""The steps of a run: parity with bare torch, resuming to the bit, selection, metrics, finished models."""

from dataclasses import replace

import pytest
import torch
from comparing import assert_same
from torch import nn

from karat.data.settings import AugmentationSettings
from karat.files.checkpoints import load_checkpoint, save_checkpoint
from karat.methods import METHODS
from karat.models import build_model
from karat.settings.config import Config, NoiseSettings, OptimizerSettings, TrainingSettings
from karat.training.audit_record import audit_record
from karat.training.fit import fit
from karat.training.random_states import random_states, restore_random_states
from karat.training.tasks import task_of
from karat.training.trainer import Trainer, sampled

NOISE = NoiseSettings(kind="uniform", rate=0.6)


def config(method="ieg", **changes):
    base = Config(
        method=method,
        data=replace(Config().data, name="wine", trusted_per_class=5),
        noise=NOISE,
        training=TrainingSettings(steps=12, batch_size=20, device="cpu"),
    )
    return replace(base, **changes)


def trained(settings, steps=None):
    trainer = Trainer(settings, task_of(settings))
    while not trainer.finished and trainer.steps_done != steps:
        trainer.train_step()
    return trainer


@pytest.mark.parametrize("method", ["supervised", "l2r", "ieg"])
@pytest.mark.parametrize("dataset", ["wine", "digits"])
@pytest.mark.parametrize("optimizer", ["sgd", "muon", "adamw"])
def test_resuming_at_any_step_gives_the_same_run(method, dataset, optimizer, tmp_path):
    """Uninterrupted and stopped after 5 of 8 steps, in the middle of an epoch: every tensor is equal."""
    settings = config(
        method,
        data=replace(Config().data, name=dataset, trusted_per_class=5, limit=60),
        training=TrainingSettings(steps=8, batch_size=20, device="cpu"),
        optimizer=OptimizerSettings(name=optimizer, rate=0.01),
    )
    straight = trained(settings)
    stopped = trained(settings, steps=5)
    file = tmp_path / "checkpoint.pt"
    torch.save(stopped.state_dict(), file)
    torch.rand(7)  # the process that resumes has another past

    resumed = Trainer(settings, task_of(settings))
    resumed.load_state_dict(torch.load(file, weights_only=True))
    fit(resumed, evaluate=False)
    assert_same(resumed.state_dict(), straight.state_dict())
    assert resumed.end_epoch() == straight.end_epoch()


@pytest.mark.parametrize(("method", "trusted"), [*((method, 5) for method in METHODS), ("karat", 0)])
def test_every_method_resumes_to_the_bit(method, trusted, tmp_path):
    """Stopped in the first, a middle and the last phase, between and in the middle of epochs: every tensor is equal."""
    settings = config(
        method,
        data=replace(Config().data, name="wine", trusted_per_class=trusted, validation_share=0.1),
        training=TrainingSettings(steps=24, batch_size=20, device="cpu", evaluate_every=1),
    )
    file = tmp_path / "checkpoint.pt"
    straight = Trainer(settings, task_of(settings))
    resumed = Trainer(settings, task_of(settings))
    while not straight.finished:
        for trainer in (straight, resumed):
            trainer_states = random_states()
            if trainer is resumed and trainer.steps_done % 5 == 0:
                save_checkpoint(file, trainer.state_dict())
                torch.rand(7)  # the process that resumes has another past
                resumed = Trainer(settings, task_of(settings))
                resumed.load_state_dict(load_checkpoint(file))
                trainer = resumed
            trainer.train_step()
            if trainer.evaluation_due:
                trainer.end_epoch()
            if trainer is straight:
                after_straight = random_states()
                restore_random_states(trainer_states)
        restore_random_states(after_straight)
    assert_same(resumed.state_dict(), straight.state_dict())
    found, expected = (
        {name: model.state_dict() for name, (model, _) in trainer.finished_models().items()}
        for trainer in (resumed, straight)
    )
    assert_same(found, expected)


def test_supervised_run_equals_a_bare_torch_loop():
    """The same seeds, batches and rates in twelve lines of plain torch: equal parameters, to the bit."""
    settings = config("supervised", augmentation=replace(Config().augmentation, feature_noise=0.0))
    settings = replace(settings, training=replace(settings.training, label_smoothing=0.1))
    trainer = Trainer(settings, task_of(settings))
    task, schedule = trainer.task, trainer.course.rate
    batches = Trainer(settings, task).streams.noisy
    torch.manual_seed(settings.seed)
    model = build_model("mlp", (13,), 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for step in range(12):
        rows = batches.next(20)
        optimizer.param_groups[0]["lr"] = schedule(step)
        optimizer.zero_grad()
        logits = model(task.noisy.inputs[rows])
        nn.functional.cross_entropy(logits, task.noisy.labels[rows], label_smoothing=0.1).backward()
        optimizer.step()
        trainer.train_step()
    assert_same(trainer.model.state_dict(), model.state_dict())


def test_the_selected_model_is_the_average_at_the_lowest_rate():
    """Cosine restarts with 6 steps an epoch (115 noisy wines, batches of 20): cycles of 6 and 9 steps, then 14.

    18 steps reach into the third cycle, so the model is taken after step 14 (counted from 0), the end of the second.
    """
    settings = config(
        training=TrainingSettings(steps=18, batch_size=20, device="cpu"),
        optimizer=OptimizerSettings(schedule="cosine_restarts"),
    )
    trainer = Trainer(settings, task_of(settings))
    assert trainer.steps_per_epoch == 6
    assert trainer.course.selected_step == 14
    for _ in range(15):
        trainer.train_step()
    expected = {name: value.clone() for name, value in trainer.kept.averaged.module.state_dict().items()}
    while not trainer.finished:
        trainer.train_step()
    assert_same(dict(trainer.kept.selected.module.state_dict()), expected)
    assert not torch.equal(
        next(iter(expected.values())), next(iter(trainer.kept.averaged.module.state_dict().values()))
    )


def test_metrics_hold_both_accuracies_and_the_coefficients():
    trainer = trained(config())
    metrics = trainer.end_epoch()
    assert {"accuracy", "top5", "raw_accuracy", "raw_top5", "total", "consistency"} <= metrics.keys()
    assert 0 <= metrics["clean_weight_share"] <= 1
    assert 0 <= metrics["mislabelled_label_trust"] <= 1
    assert (trainer.ledger.times_seen.sum() == 12 * 20).item()


def test_before_the_end_a_sample_of_the_test_examples_is_measured(monkeypatch):
    monkeypatch.setattr("karat.training.trainer.MEASURED_BETWEEN", 30)
    trainer = trained(config(), steps=6)
    assert trainer.end_epoch()["test_examples"] == 30
    while not trainer.finished:
        trainer.train_step()
    assert trainer.end_epoch()["test_examples"] == len(trainer.task.dataset.test) > 30


def test_a_sample_of_test_examples_has_all_classes_where_these_come_in_turn():
    """10,000 examples of ten classes in turn: every fifth one would be of two of them."""
    assert sampled(10_000, 2_000).remainder(10).bincount().min() > 150


def test_the_end_of_an_epoch_begins_new_sums():
    trainer = trained(config(), steps=7)
    assert "total" in trainer.end_epoch()
    assert "total" not in trainer.end_epoch()


def test_the_validated_model_is_the_average_that_was_best_on_held_out_examples(monkeypatch):
    """The accuracies of three epochs are said to be 0.5, 0.75 and 0.6: the average after the second is kept."""
    settings = config(data=replace(Config().data, name="wine", trusted_per_class=5, validation_share=0.2))
    trainer = Trainer(settings, task_of(settings))
    averages = []
    for accuracy in (0.5, 0.75, 0.6):
        trainer.train_step()
        monkeypatch.setattr(trainer, "_measured", lambda accuracy=accuracy: {"validation_accuracy": accuracy})
        trainer.end_epoch()
        averages.append({name: value.clone() for name, value in trainer.kept.averaged.module.state_dict().items()})
    assert_same(dict(trainer.models()["validated"].state_dict()), averages[1])
    assert list(trainer.models()) == ["averaged", "raw", "validated"]


def test_every_optimizer_trains_with_every_method():
    for name in ("adam", "nadam", "radam", "rmsprop", "adagrad", "adamax", "adadelta"):
        for method in ("l2r", "ieg"):
            settings = config(
                method,
                optimizer=OptimizerSettings(name=name, rate=0.01),
                training=TrainingSettings(steps=2, batch_size=20, device="cpu"),
            )
            assert all(p.isfinite().all() for p in trained(settings).model.parameters())


def test_every_image_is_mirrored_in_every_other_pass_where_that_means_the_same():
    """Digits are not mirrored by themselves; made to be, each is mirrored in exactly one of two passes."""
    trainer = trained(config(data=replace(Config().data, name="digits", trusted_per_class=5, limit=60)), steps=0)
    rows = torch.arange(len(trainer.task.noisy))
    assert trainer._mirrored(rows, 0) is None
    trainer.config = replace(trainer.config, augmentation=AugmentationSettings(flip=True))
    first, second = trainer._mirrored(rows, 0), trainer._mirrored(rows, 1)
    assert torch.equal(first, ~second)
    assert 0 < first.double().mean() < 1
    assert torch.equal(trainer._mirrored(rows, 2), first)


def test_a_batch_is_never_larger_than_the_noisy_set():
    trainer = trained(config(training=TrainingSettings(steps=2, batch_size=10_000, device="cpu")))
    assert trainer.batch_size == len(trainer.task.noisy)
    assert trainer.steps_per_epoch == 1


def test_each_different_model_is_finished_once(monkeypatch):
    """With the cosine schedule the selected weights are the averaged ones after the last step: two for three."""
    trainer = trained(config("karat", model="mlp"))  # the linear one is fitted, and no average differs from it
    finished_ones, finish = [], trainer.method.finish
    monkeypatch.setattr(trainer.method, "finish", lambda model: finished_ones.append(model) or finish(model))
    finished = trainer.finished_models()
    assert len(finished_ones) == 2
    assert finished["selected"] is finished["averaged"]
    assert finished["raw"].model is not finished["averaged"].model
    record = audit_record(trainer, finished["selected"])
    assert len(finished_ones) == 2, "the audit takes the judgement that was made"
    torch.testing.assert_close(record.ledger.probabilities, finished["selected"].judgement.probabilities)
    assert torch.equal(record.transition, finished["selected"].judgement.transition)


@pytest.mark.parametrize(("flip", "mirrored"), [(None, False), (True, True)])
def test_methods_know_whether_a_mirrored_image_means_the_same(flip, mirrored):
    """A mirrored digit means another thing, unless somebody says otherwise."""
    settings = config("karat", data=replace(Config().data, name="digits", trusted_per_class=5))
    settings = replace(settings, augmentation=replace(settings.augmentation, flip=flip))
    assert Trainer(settings, task_of(settings)).method.task.mirrored is mirrored


@pytest.mark.parametrize("method", ["ieg", "l2r"])
def test_a_trusted_loss_of_zero_leaves_every_weight_zero_and_training_goes_on(method, monkeypatch):
    """Without a slope of the trusted loss −∂L/∂ω is 0 for all examples: no weight, no NaN, and a finite network."""

    def flat(network, parameters, *arguments):
        return {name: torch.zeros_like(value) for name, value in parameters.items()}

    monkeypatch.setattr("karat.algorithm.coefficients.trusted_gradient", flat)
    trainer = trained(config(method))
    assert trainer.finished
    assert trainer.ledger.mean_weight[trainer.ledger.times_seen > 0].abs().max() == 0
    assert all(bool(parameter.isfinite().all()) for parameter in trainer.model.parameters())
