"""Karat: posteriors by what inputs look like, then by the network too; its judge's head at the end."""

from dataclasses import replace

import pytest
import torch
from harness import CLASSES, COUNT, batch, learner, network, stepped, task
from torch import nn
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.karat import judge
from karat.methods.karat.method import Karat, KaratSettings, with_head
from karat.methods.step import Progress
from karat.noise_matrix import true_posterior

SETTINGS = KaratSettings()
FIRST_PASS = Progress(step=0, total_steps=9, steps_per_epoch=3)
SECOND_PASS = Progress(step=3, total_steps=9, steps_per_epoch=3)


def shown():
    """Return the task with inputs that show their class: random ones tell judges nothing."""
    plain = task()

    def showing(inputs, labels):
        return lambda rows: inputs(rows) + 3 * torch.eye(CLASSES, 6, dtype=torch.float64)[labels[rows]]

    return replace(
        plain,
        noisy_inputs=showing(plain.noisy_inputs, plain.given_labels),
        trusted_inputs=showing(plain.trusted_inputs, plain.trusted_labels),
    )


def asking_the_network():
    """Return a method that also judges by the network, as it does with images."""
    method = Karat(shown(), SETTINGS)
    method.network_judges = True
    return method


def fitted():
    """Return a method after its second fit, and the network whose features it read."""
    module = network()
    method = asking_the_network()
    method.begin_epoch(FIRST_PASS, learner(module), SETTINGS, torch.Generator())
    method.begin_epoch(SECOND_PASS, learner(module), SETTINGS, torch.Generator())
    return method, module


def test_vectors_are_learned_by_the_verdict_alone():
    method, module = Karat(shown(), SETTINGS), network()
    method.begin_epoch(FIRST_PASS, None, SETTINGS, torch.Generator())
    verdict = method.verdict
    method.begin_epoch(SECOND_PASS, learner(module), SETTINGS, torch.Generator())
    assert method.posterior is verdict.posterior
    finished, judgement = method.finish(module)
    assert finished is module
    assert torch.equal(judgement.posterior, verdict.posterior)
    torch.testing.assert_close(judgement.posterior.sum(dim=1), torch.ones(COUNT))
    torch.testing.assert_close(judgement.transition.sum(dim=1), torch.ones(CLASSES))


def test_the_first_posteriors_come_before_the_network_has_learned_anything():
    method = asking_the_network()
    method.begin_epoch(FIRST_PASS, None, SETTINGS, torch.Generator())
    assert method.appearance_logits.shape == (COUNT, CLASSES)
    expected = true_posterior(method.probabilities, method.task.given_labels, method.transition)
    torch.testing.assert_close(method.posterior, expected)


def test_later_ones_listen_to_both_judges():
    method, module = fitted()
    by_both = method.probabilities
    method.appearance_logits = torch.zeros_like(method.appearance_logits)
    method.begin_epoch(SECOND_PASS, learner(module), SETTINGS, torch.Generator())
    assert not torch.allclose(method.probabilities, by_both, atol=1e-3)


def test_a_fit_gives_posteriors_by_bayes_rule():
    method, _ = fitted()
    expected = true_posterior(method.probabilities, method.task.given_labels, method.transition)
    torch.testing.assert_close(method.posterior, expected)
    torch.testing.assert_close(method.posterior.sum(dim=1), torch.ones(COUNT))
    wrong = 1 - method.posterior[torch.arange(COUNT), method.task.given_labels].mean().item()
    assert method.noise_rate == pytest.approx(wrong)


def test_a_step_learns_the_posteriors_and_sharpened_ones():
    """Without mixup: cross-entropy to q on the weak view, to q² / Σ q² on the strong one (τ = 1/2), to the truth."""
    method, module = fitted()
    data, settings = batch(), KaratSettings(mixup=0.0)
    q = method.posterior[data.rows].double()
    sharp = q**2 / (q**2).sum(dim=1, keepdim=True)

    def loss(bare):
        weak, strong, trusted = bare(torch.cat([data.noisy_inputs] * 2 + [data.trusted_inputs])).split([10, 10, 8])
        fit = [-(t * z.log_softmax(dim=1)).sum(dim=1).mean() for t, z in ((q, weak), (sharp, strong))]
        return sum(fit) + cross_entropy(trusted, data.trusted_labels)

    module.train()
    expected = stepped(module, loss)
    result = method.step(learner(module), data, settings, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)
    torch.testing.assert_close(result.label_trust, q[torch.arange(10), data.given_labels])
    torch.testing.assert_close(result.logits.softmax(dim=1), method.probabilities[data.rows].double())


def test_the_fit_survives_a_checkpoint():
    method, _ = fitted()
    resumed = Karat(shown(), SETTINGS)
    resumed.load_state_dict(method.state_dict())
    for name in Karat.remembers:
        before, now = getattr(method, name), getattr(resumed, name)
        assert type(now) is type(before)
        for one, other in zip(
            *(value if isinstance(value, tuple) else [value] for value in (before, now)), strict=True
        ):
            assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_a_run_keeps_its_deal_also_when_resumed_and_another_seed_deals_anew(monkeypatch):
    """Every fit of a run judges the same rows together: two by appearance, then one of the network's features a fit."""
    dealt, deal = [], judge._deal
    monkeypatch.setattr(judge, "_deal", lambda *arguments: dealt.append(deal(*arguments)) or dealt[-1])
    orders = {}
    for seed in (1, 2):
        module, generator = network(), torch.Generator().manual_seed(seed)
        method, resumed = asking_the_network(), asking_the_network()
        method.begin_epoch(FIRST_PASS, learner(module), SETTINGS, generator)
        resumed.load_state_dict(method.state_dict())
        for one in (method, resumed):
            one.begin_epoch(SECOND_PASS, learner(module), SETTINGS, torch.Generator())
        assert torch.equal(method.posterior, resumed.posterior)
        orders[seed] = [folds.used for folds in dealt]
        dealt.clear()
        assert len(orders[seed]) == 4
        assert all(torch.equal(order, orders[seed][0]) for order in orders[seed])
    assert not torch.equal(orders[1][0], orders[2][0])


def test_one_number_is_drawn_from_the_runs_generator_before_the_first_pass():
    drawn, expected = (torch.Generator().manual_seed(7) for _ in range(2))
    method = Karat(shown(), SETTINGS)
    method.begin_epoch(FIRST_PASS, learner(network()), SETTINGS, drawn)
    assert method.seed == int(torch.randint(2**63 - 1, (), generator=expected))
    method.begin_epoch(SECOND_PASS, learner(network()), SETTINGS, drawn)
    assert torch.equal(drawn.get_state(), expected.get_state())


def test_the_last_layer_becomes_the_label_models_head():
    method, module = fitted()
    finished = method.finish(module).model
    assert not torch.equal(finished[3].weight, module[3].weight)
    torch.testing.assert_close(finished[0].weight, module[0].weight, rtol=0, atol=0)


def test_a_head_takes_the_place_of_the_last_layer():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES))
    inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.randn(CLASSES, 5), torch.randn(CLASSES)
    torch.testing.assert_close(with_head(model, inputs, weight, bias)(inputs), model[:2](inputs) @ weight.T + bias)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES, bias=False)),
        nn.Sequential(nn.Linear(6, CLASSES), nn.Tanh()),  # goes on after its last linear layer
    ],
)
def test_a_network_without_such_a_layer_keeps_its_parts(model):
    """So that its weights are loaded into the network of this name; the label model reads its logits."""
    method = Karat(shown(), SETTINGS)
    model = model.double()
    method.begin_epoch(FIRST_PASS, learner(model), SETTINGS, torch.Generator())
    method.begin_epoch(SECOND_PASS, learner(model), SETTINGS, torch.Generator())
    torch.testing.assert_close(method.finish(model).model.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert method.posterior.isfinite().all()


@pytest.mark.parametrize("wrong", [{"refits": 0}, {"temperature": 0.0}, {"mixup": -1.0}])
def test_settings_are_checked(wrong):
    with pytest.raises(UserError, match=f"methods.karat.{next(iter(wrong))} is"):
        KaratSettings(**wrong)


def test_the_network_has_no_part_in_the_judgement():
    """It has learned from every label that there is to judge."""
    method, module = fitted()
    finished, judgement = method.finish(module)
    assert finished is not module
    assert torch.equal(judgement.posterior, method.verdict.posterior)
    assert not torch.equal(judgement.posterior, method.posterior)
