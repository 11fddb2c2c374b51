"""Karat: the verdict by what inputs look like; of images, by networks too, of what they have not learned."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import CLASSES, COUNT, batch, learner, network, stepped, task
from torch import nn
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.karat.constants import CONSTANTS
from karat.methods.karat.learning import features_or_logits
from karat.methods.karat.method import Karat
from karat.methods.settings import KaratSettings
from karat.methods.shared.mixup import beta_factors
from karat.methods.step import Batch, Progress
from karat.training.phases import phase_spans

SETTINGS = KaratSettings()
PLAIN = KaratSettings(mixup=0.0)
ROUNDS = 2


def progress(phase, step=0):
    return Progress(step, 10, steps_per_epoch=5, phase=phase)


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


def pictures():
    """Return the task with images of 8x8 pixels, bright where their class says."""
    drawn = torch.randn(COUNT + 2 * CLASSES, 1, 8, 8, generator=torch.Generator().manual_seed(5)).double()
    plain = task()
    for image, label in zip(drawn, torch.cat([plain.given_labels, plain.trusted_labels]), strict=True):
        image[0, 2 * label : 2 * label + 2] += 3
    return replace(
        plain,
        modality="images",
        noisy_inputs=lambda rows: drawn[:COUNT][rows],
        trusted_inputs=lambda rows: drawn[COUNT:][rows],
        new_learner=lambda: learner(image_network()),
    )


def image_network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)
    ).double()


def picture_batch(count=10, phase=0):
    everything, rows = pictures(), torch.arange(count)
    trusted = torch.arange(2 * CLASSES)
    return Batch(
        everything.noisy_inputs(rows),
        everything.given_labels[rows],
        everything.trusted_inputs(trusted),
        everything.trusted_labels,
        rows,
        progress(phase),
    )


def begun(of, one=None):
    method = Karat(of, SETTINGS)
    method.begin_phase(0, one or learner(network()), SETTINGS, torch.Generator().manual_seed(2))
    return method


def run(method, one, steps):
    """Take some of the ten steps of each of three phases as the training loop would."""
    for number in steps:
        phase, step = divmod(number, 10)
        if step == 0 and phase:
            method.begin_phase(phase, one, SETTINGS, torch.Generator())
        method.step(one, picture_batch(phase=phase), PLAIN, torch.Generator().manual_seed(number))


def test_vectors_are_learned_by_the_first_verdict():
    method, module = begun(shown()), network()
    verdict = method.verdict
    assert [phase.share for phase in method.phases(SETTINGS)] == [1.0]
    finished, judgement = method.finish(module)
    assert finished is module, "24 rows grow no trees"
    assert torch.equal(judgement.posterior, verdict.posterior)
    torch.testing.assert_close(judgement.posterior.sum(dim=1), torch.ones(COUNT))
    torch.testing.assert_close(judgement.transition.sum(dim=1), torch.ones(CLASSES))
    wrong = 1 - verdict.posterior[torch.arange(COUNT), method.task.given_labels].mean().item()
    assert method.noise_rate == pytest.approx(wrong)


def test_a_step_learns_the_posteriors_and_sharpened_ones():
    """Without mixup: cross-entropy to q on the weak view, to q² / Σ q² on the strong one (τ = 1/2), to the truth."""
    method, module, data = begun(shown()), network(), batch()
    q = method.verdict.posterior[data.rows].double()
    sharp = q**2 / (q**2).sum(dim=1, keepdim=True)

    def loss(bare):
        weak, strong, trusted = bare(torch.cat([data.noisy_inputs] * 2 + [data.trusted_inputs])).split([10, 10, 8])
        fit = [-(t * z.log_softmax(dim=1)).sum(dim=1).mean() for t, z in ((q, weak), (sharp, strong))]
        return sum(fit) + cross_entropy(trusted, data.trusted_labels)

    module.train()
    expected = stepped(module, loss)
    result = method.step(learner(module), data, PLAIN, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)
    torch.testing.assert_close(result.label_trust, q[torch.arange(10), data.given_labels].float())
    torch.testing.assert_close(result.logits.softmax(dim=1), method.verdict.probabilities[data.rows])


def unlike(features, known, by_class):
    """Return 0.3 of how unlike features of two views of ten images are.

    Twins should be like each other by 1 − by_class, those of the same class by the rest.
    """
    near = features - features.mean(dim=0).detach()
    near = near / near.norm(dim=1, keepdim=True)
    terms = []
    for one in range(20):
        twin, others = (one + 10) % 20, [other for other in range(20) if other != one]
        chances = dict(zip(others, (near[others] @ near[one] / 0.1).log_softmax(dim=0), strict=True))
        same = {other: known[one % 10] @ known[other % 10] for other in others if other != twin}
        terms += [(1 - by_class) * chances[twin]]
        terms += [by_class * chances[other] * share / sum(same.values()) for other, share in same.items()]
    return -0.3 * sum(terms) / 20


def learned(bare, data, said_for, often, mixed=None):
    """Return the loss of a step on a weak view and a close-up (the same here), and on the trusted images.

    `said_for` takes the network's own prediction and returns what is learned; 0.3 is the weight of the close-up and of
    what features of both views should be like. With factors and partners in `mixed`, weak views and trusted images are
    mixed with each other in a pass of their own, and learned so.
    """
    verified = torch.eye(CLASSES, dtype=torch.float64)[data.trusted_labels]
    plain = torch.cat([data.noisy_inputs, data.trusted_inputs])
    shown = [data.noisy_inputs] * 2 + ([data.trusted_inputs] if mixed is None else [mixture(plain, *mixed)])
    features = bare[:-1](torch.cat(shown))
    weak, close, others = bare[-1](features).split([10, 10, len(features) - 20])
    wanted = said_for(weak.detach().softmax(dim=1))
    targets = torch.cat([wanted, verified])
    seen = torch.cat([weak, others]) if mixed is None else others
    targets = targets if mixed is None else mixture(targets, *mixed)
    terms = ((1.0, seen[:10], targets[:10]), (0.3, close, wanted), (often, seen[10:], targets[10:]))
    labels = sum(weight * cross_entropy(z, t) for weight, z, t in terms) / (1.3 + often)
    return labels + unlike(features[:20], wanted, 0.5)


def mixture(values, factor, partner):
    factor = factor.to(values).view(-1, *[1] * (values.dim() - 1))
    return factor * values + (1 - factor) * values[partner]


def aligned(said, shares):
    """Return predictions times the square root of the shares of the classes against those predicted so far."""
    means = 0.98 * shares + 0.02 * said.mean(dim=0)
    return said * (shares / means).sqrt()


@pytest.mark.parametrize("phase", [0, 1])
def test_each_network_learns_the_labels_of_its_half_alone(phase):
    """Cross-entropy to w^(1/τ) / Σ w^(1/τ) with τ = 0.7: w is q on own rows, p on others.

    Later w has the square root of the network's own prediction s in the place of that of p: √(p·s)·T[:, y] and √(p·s).
    """
    one = learner(image_network())
    method, data = begun(pictures(), one), picture_batch(phase=phase)
    pair = [part.network.module for part in (one, method.partner)]
    p, q, shares = (part[:10].double() for part in (*method.verdict[:2], method.verdict.shares))
    likelihood = method.verdict.transition.double().T[data.given_labels]
    expected = []
    for half, module in enumerate(pair):
        own = (method.halves[:10] == half)[:, None]
        assert 2 <= own.sum() <= 8

        def said_for(said, own=own):
            wanted = torch.where(own, q, p)
            if phase:
                known = (p * aligned(said, shares)).sqrt()
                wanted = torch.where(own, known * likelihood, known)
            wanted = wanted ** (1 / 0.7)
            return wanted / wanted.sum(dim=1, keepdim=True)

        expected.append(stepped(module.train(), lambda bare, of=said_for: learned(bare, data, of, 2 * CLASSES / 10)))
    method.step(one, data, SETTINGS, torch.Generator())
    for module, state in zip(pair, expected, strict=True):
        torch.testing.assert_close(module.state_dict(), state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("step", "share", "often", "mixup"),
    [(0, 0.0, 1.0, 0.0), (10, 0.5, 1.0, 0.0), (20, 1.0, 1.0, 0.0), (29, 1.0, 0.5, 0.0), (29, 1.0, 1.0, 4.0)],
)
def test_the_network_that_goes_on_learns_its_own_predictions_and_what_labels_say_of_them(step, share, often, mixup):
    """Cross-entropy to w^(1/τ) / Σ w^(1/τ), τ = 0.8, w = p^(1−a)·s^a·q/p; a grows to 1.

    Trusted images count ten times for one noisy image, but together no more than a view. Mixup has factors from
    Beta(a, a), with a in proportion to the noise, and no less than a half for the first.
    """
    one = learner(image_network())
    method = begun(pictures(), one)
    method.halves = torch.empty(0, dtype=torch.long)
    repeated = often * COUNT / (2 * CLASSES) if often < 1 else 10.0
    method.constants = replace(CONSTANTS, network=replace(CONSTANTS.network, trusted_repeated=repeated))
    data = picture_batch()._replace(progress=Progress(step, 30, 5, phase=ROUNDS))
    p, q, shares = (part[:10].double() for part in (*method.verdict[:2], method.verdict.shares))

    def said_for(said):
        wanted = (p ** (1 - share) * aligned(said, shares) ** share * q / p) ** (1 / 0.8)
        return wanted / wanted.sum(dim=1, keepdim=True)

    mixed, generator = None, torch.Generator().manual_seed(8)
    if mixup:
        method.noise_rate = 0.5
        factor = beta_factors(10 + 2 * CLASSES, mixup * method.noise_rate, generator)
        mixed = torch.maximum(factor, 1 - factor), torch.randperm(10 + 2 * CLASSES, generator=generator)
    expected = stepped(one.network.module.train(), lambda bare: learned(bare, data, said_for, often, mixed))
    method.step(one, data, KaratSettings(mixup=mixup), torch.Generator().manual_seed(8))
    torch.testing.assert_close(one.network.module.state_dict(), expected, rtol=1e-5, atol=1e-6)


def test_a_network_without_a_linear_layer_has_its_logits_for_features():
    module = nn.Sequential(nn.Conv2d(1, CLASSES, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    features, logits = features_or_logits(learner(module), torch.randn(5, 1, 8, 8).double())
    assert features is logits
    assert logits.shape == (5, CLASSES)


def test_networks_judge_in_rounds_and_one_goes_on():
    one = learner(image_network())
    method = begun(pictures(), one)
    assert [phase.fresh for phase in method.phases(SETTINGS)] == [True, False, False]
    assert sum(phase.share for phase in method.phases(SETTINGS)) == pytest.approx(1)
    verdicts = [method.verdict]
    for phase in range(3):
        run(method, one, range(10 * phase, 10 * phase + 10))
        verdicts.append(method.verdict)
        assert bool(len(method.halves)) is (phase < ROUNDS)
    first, second, third, last = (verdict.probabilities for verdict in verdicts)
    assert torch.equal(first, second), "the first round has no network to hear"
    assert not torch.equal(second, third)
    assert not torch.equal(third, last)
    partner = copy.deepcopy(method.partner.network.module.state_dict())
    run(method, one, range(21, 30))
    torch.testing.assert_close(method.partner.network.module.state_dict(), partner, rtol=0, atol=0)
    assert torch.equal(method.finish(one.network.module).judgement.probabilities, last)


def test_rounds_of_judging_are_short_in_long_runs():
    """A quarter of the steps each, but no more than 400, or two passes where these are more."""
    phases = Karat(pictures(), SETTINGS).phases(SETTINGS)

    def lengths(steps, steps_per_epoch):
        return [len(span) for span in phase_spans(phases, steps, steps_per_epoch)]

    assert lengths(1_200, 99) == [300, 300, 600]
    assert lengths(3_600, 99) == [400, 400, 2_800]
    assert lengths(12_000, 499) == [998, 998, 10_004]


@pytest.mark.parametrize("phase", [0, 1])
def test_the_judge_of_an_example_has_not_learned_its_label(phase):
    """Whatever the label and the posterior of a row in the second half are, the first network's steps are the same."""
    found = []
    for label in (0, 1):
        one = learner(image_network())
        method = begun(pictures(), one)
        row = int((method.halves[:10] == 1).nonzero()[0])
        posterior, given = method.verdict.posterior.clone(), method.labels.given.clone()
        posterior[row], given[row] = torch.eye(CLASSES)[label], label
        method.verdict, method.labels = (
            method.verdict._replace(posterior=posterior),
            method.labels._replace(given=given),
        )
        data = picture_batch(phase=phase)
        data = data._replace(given_labels=given[data.rows])
        for seed in range(4):
            method.step(one, data, PLAIN, torch.Generator().manual_seed(seed))
        found.append([copy.deepcopy(part.network.module.state_dict()) for part in (one, method.partner)])
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=0)
    assert not torch.equal(found[0][1]["1.weight"], found[1][1]["1.weight"])


def test_where_rates_differ_networks_learn_the_given_labels_of_their_halves():
    """No trusted label, no verdict: a network that knows nothing of T can tell what T is. All images teach features."""
    one = learner(image_network())
    method, data = begun(pictures(), one), picture_batch()
    method.is_literal = True
    pair = [part.network.module for part in (one, method.partner)]
    expected = []
    for half, module in enumerate(pair):
        own = method.halves[:10] == half

        def loss(bare, own=own):
            features = bare[:-1](torch.cat([data.noisy_inputs] * 2))
            views = (bare[-1](view[own]) for view in features.split(10))
            fit = (
                weight * cross_entropy(z, data.given_labels[own]) for weight, z in zip((1.0, 0.3), views, strict=True)
            )
            return sum(fit) / 1.3 + unlike(features, torch.ones(10, 1, dtype=torch.float64), 0.0)

        expected.append(stepped(module.train(), loss))
    method.step(one, data, PLAIN, torch.Generator())
    for module, state in zip(pair, expected, strict=True):
        torch.testing.assert_close(module.state_dict(), state, rtol=1e-5, atol=1e-6)


def test_networks_that_predict_given_labels_become_a_judge_once():
    """Heard again after the second round, they take the place of what they said after the first."""
    one = learner(image_network())
    method = begun(pictures(), one)
    method.is_literal, judges = True, method.hearing.noisy.shape[1]
    for phase in (1, 2):
        method.begin_phase(phase, one, SETTINGS, torch.Generator())
        assert method.hearing.noisy.shape[1] == method.hearing.trusted.shape[1] == judges + 1
    other = Karat(pictures(), SETTINGS)
    other.load_state_dict(method.state_dict())
    assert other.is_literal
    torch.testing.assert_close(other.hearing, method.hearing, rtol=0, atol=0)


def test_each_half_is_judged_by_the_network_of_the_other():
    one = learner(image_network())
    method = begun(pictures(), one)
    heard = []
    method._decide = heard.append
    with torch.no_grad():
        for half, part in enumerate((one, method.partner)):
            part.network.module[-1].weight.zero_()
            part.network.module[-1].bias.copy_(torch.eye(CLASSES)[half])
    method.begin_phase(1, one, SETTINGS, torch.Generator())
    assert torch.equal(heard[0].argmax(dim=1), 1 - method.halves)


@pytest.mark.parametrize("stop", [3, 10, 13, 20, 26])
def test_a_run_of_images_goes_on_from_a_checkpoint(stop):
    """In either round of two networks, between them, and after: the same weights and the same verdict."""
    one = learner(image_network())
    method = begun(pictures(), one)
    run(method, one, range(stop))
    other = learner(copy.deepcopy(one.network.module))
    other.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))
    resumed = Karat(pictures(), SETTINGS)
    resumed.load_state_dict(copy.deepcopy(method.state_dict()))
    run(method, one, range(stop, 30))
    run(resumed, other, range(stop, 30))
    torch.testing.assert_close(one.network.module.state_dict(), other.network.module.state_dict(), rtol=0, atol=0)
    assert torch.equal(method.verdict.probabilities, resumed.verdict.probabilities)


def test_another_seed_deals_other_halves():
    halves = []
    for seed in (1, 1, 2):
        method = Karat(pictures(), SETTINGS)
        method.begin_phase(0, learner(image_network()), SETTINGS, torch.Generator().manual_seed(seed))
        halves.append(method.halves)
    assert torch.equal(halves[0], halves[1])
    assert not torch.equal(halves[0], halves[2])
    assert halves[0].bincount().tolist() == [COUNT // 2, COUNT // 2]


def test_one_number_is_drawn_from_the_runs_generator_before_the_first_pass():
    drawn, expected = (torch.Generator().manual_seed(7) for _ in range(2))
    method = Karat(shown(), SETTINGS)
    method.begin_phase(0, learner(network()), SETTINGS, drawn)
    assert method.seed == int(torch.randint(2**63 - 1, (), generator=expected))
    assert torch.equal(drawn.get_state(), expected.get_state())


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"temperature": 0.0}, {"mixup": -1.0}])
def test_settings_are_checked(wrong):
    with pytest.raises(UserError, match=f"methods.karat.{next(iter(wrong))} is"):
        KaratSettings(**wrong)
