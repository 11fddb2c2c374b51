"""A judge of features whose true classes and noise are known."""

import pytest
import torch

from karat.methods.karat.constants import Constants, JudgeConstants
from karat.methods.karat.judge import Evidence, fit_judge
from karat.methods.karat.label_model import first_transition
from karat.noise_matrix import true_posterior, uniform_transition

CLASSES, FEATURES = 4, 6


def seeded():
    return torch.Generator().manual_seed(0)


def evidence(noise, count=2000, trusted_per_class=5, spread=1.0, seed=0):
    """Draw Gaussian classes, labels by the matrix `noise[true, given]`, and trusted examples; return also the truth."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(CLASSES, FEATURES, generator=generator)
    true = torch.arange(count) % CLASSES
    trusted = torch.arange(CLASSES * trusted_per_class) % CLASSES
    draw = lambda labels: centres[labels] + spread * torch.randn(len(labels), FEATURES, generator=generator)  # noqa: E731
    given = torch.multinomial(noise[true], 1, generator=generator).squeeze(1)
    return Evidence(draw(true), given, draw(trusted), trusted), true


def uniform(rate):
    return uniform_transition(CLASSES, rate).float()


def shifted(rate):
    """Return the matrix under which this share of each class is labelled as the next one."""
    return (1 - rate) * torch.eye(CLASSES) + rate * torch.eye(CLASSES).roll(1, dims=1)


def posterior(found, data):
    return true_posterior(found.logits.softmax(dim=1), data.given_labels, found.transition)


@pytest.mark.parametrize(
    "noise",
    [torch.eye(CLASSES), uniform(0.4), uniform(0.8), shifted(0.4), shifted(0.8)],
    ids=["clean", "40% uniform", "80% uniform", "40% shifted", "80% shifted"],
)
def test_finds_the_noise_and_the_classes(noise):
    """2,000 labels in classes that hardly overlap: T is known to about 1/√500, the classes to a few percent.

    With 80% shifted most labels of a class are wrong in the same way; five trusted examples of each tell.
    """
    data, true = evidence(noise)
    found = fit_judge(data, first_transition(CLASSES), None, seeded())
    assert (found.transition - noise).abs().max() < 0.07
    assert (posterior(found, data).argmax(dim=1) == true).float().mean() > 0.95
    assert ((data.noisy @ found.weight.T + found.bias).argmax(dim=1) == true).float().mean() > 0.95


def test_probabilities_are_calibrated_where_classes_overlap():
    """A judge without the labels that it judges is as sure as it is right, within the noise of 2,000 labels."""
    data, true = evidence(uniform(0.7), spread=2.5, trusted_per_class=20)
    found = fit_judge(data, first_transition(CLASSES), None, seeded())
    probabilities = found.logits.softmax(dim=1)
    sure, right = probabilities.max(dim=1).values.mean(), (probabilities.argmax(dim=1) == true).float().mean()
    assert right < 0.9
    assert abs(sure - right) < 0.08
    assert (posterior(found, data).argmax(dim=1) == true).float().mean() > right


def test_trusted_examples_are_judged_without_their_label_where_nothing_has_seen_it():
    """Features that name their example let a head that saw the label repeat it; one that did not cannot."""
    trusted = torch.arange(20) % 2
    noisy = torch.randn(50, 20, generator=torch.Generator().manual_seed(1))
    data = Evidence(noisy, torch.arange(50) % 2, 8 * torch.eye(20), trusted)
    found = fit_judge(data, first_transition(2), None, seeded())
    assert found.trusted_logits.softmax(dim=1).gather(1, trusted[:, None]).mean() < 0.6
    head = torch.zeros(2, 20), torch.zeros(2)
    assert fit_judge(data, first_transition(2), head, seeded()).trusted_logits is None


@pytest.mark.parametrize("noise", [uniform(0.4), shifted(0.8)], ids=["40% uniform", "80% shifted"])
def test_where_a_class_has_few_trusted_examples_every_head_learns_from_all(noise):
    data, true = evidence(noise, trusted_per_class=1)
    found = fit_judge(data, first_transition(CLASSES), None, seeded())
    assert found.trusted_logits is None
    assert (found.logits.argmax(dim=1) == true).float().mean() > 0.95


def test_trusted_examples_that_look_like_each_others_class_do_not_swap_them():
    """Given labels, 40% of them drawn at random, tell the classes apart where one trusted example of each misleads."""
    data, true = evidence(uniform(0.4), trusted_per_class=1)
    first, second, *_ = data.trusted
    misleading = torch.stack([0.4 * first + 0.6 * second, 0.6 * first + 0.4 * second, *data.trusted[2:]])
    found = fit_judge(data._replace(trusted=misleading), first_transition(CLASSES), None, seeded())
    assert (found.logits.argmax(dim=1) == true).float().mean() > 0.9


def test_an_example_is_judged_without_its_own_label():
    """Features that name their example let a head that saw the label repeat it; one that did not cannot."""
    generator = torch.Generator().manual_seed(1)
    given = torch.randint(2, (60,), generator=generator)
    data = Evidence(torch.eye(60), given, torch.randn(4, 60, generator=generator), torch.tensor([0, 1, 0, 1]))
    found = fit_judge(data, first_transition(2), (torch.zeros(2, 60), torch.zeros(2)), seeded())
    repeated = found.logits.softmax(dim=1).gather(1, given[:, None]).mean()
    assert repeated < 0.6


def test_the_head_is_a_prior_where_labels_are_few():
    """Twelve random labels say nothing against the network's own layer."""
    data, true = evidence(torch.full((CLASSES, CLASSES), 1 / CLASSES), count=12)
    centres = torch.stack([data.noisy[true == label].mean(dim=0) for label in range(CLASSES)])
    head = 5 * centres, -2.5 * centres.square().sum(dim=1)
    found = fit_judge(data, first_transition(CLASSES), head, seeded())
    assert torch.equal(found.logits.argmax(dim=1), (data.noisy @ head[0].T + head[1]).argmax(dim=1))


def test_large_sets_are_judged_by_heads_of_a_part():
    """Heads may be fitted on fewer examples than there are; the others are judged all the same."""
    constants = Constants(judge=JudgeConstants(most_numbers=25 * CLASSES * 400))
    data, true = evidence(uniform(0.5))
    found = fit_judge(data, first_transition(CLASSES), None, seeded(), constants)
    assert found.logits.shape == (2000, CLASSES)
    assert (found.logits.argmax(dim=1) == true).float().mean() > 0.9
