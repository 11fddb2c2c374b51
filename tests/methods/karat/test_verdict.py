"""The verdict on the labels: nothing is changed where nothing can be known, and what it claims is right that often."""

from dataclasses import replace

import pytest
import torch

from karat.methods.karat.constants import TreeConstants, VerdictConstants
from karat.methods.karat.folds import Labels, View, deal
from karat.methods.karat.hearing import hear
from karat.methods.karat.hypotheses import FAMILIES, mixtures_of
from karat.methods.karat.verdict import decide
from karat.noise_matrix import asymmetric_transition, symmetric_transition, without_noise

CLASSES, TRUSTED = 3, 10
QUICK = VerdictConstants(
    strengths=(1.0, 10.0), rounds=2, sharpness=(0.7, 1.0, 1.4), trees=TreeConstants(stages=(8, 25))
)


def table(spread, rate, seed=0, count=900, asymmetric=False):
    """Return features, true and given labels, and trusted rows of three classes around the corners of a triangle."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(CLASSES, (count,), generator=generator)
    inputs = torch.eye(CLASSES)[true] * 3 + spread * torch.randn(count, CLASSES, generator=generator)
    matrix = (asymmetric_transition if asymmetric else symmetric_transition)(CLASSES, rate)
    given = torch.multinomial(matrix[true], 1, generator=generator).flatten()
    trusted = torch.cat([(true == label).nonzero().flatten()[:TRUSTED] for label in range(CLASSES)])
    noisy = torch.ones(count, dtype=torch.bool)
    noisy[trusted] = False
    return inputs, true, given, trusted, noisy


def heard_of(view, labels, constants=QUICK, trees=False, seed=1):
    """Let judges hear of all rows; those that no head learns from come 100 at a time."""
    generator = torch.Generator().manual_seed(seed)
    folds = deal(labels, generator, constants)
    some = folds.others.split(100) if len(folds.others) else ()
    others = [(rows, [view.noisy[rows]]) for rows in some]
    learned = View(view.noisy[folds.learned], view.trusted)
    return hear([learned], view if trees else None, labels, folds, generator, others, constants)[0]


def judged(inputs, true, given, trusted, noisy, trees=True, constants=QUICK):
    view = View(inputs[noisy], inputs[trusted])
    labels = Labels(given[noisy], true[trusted], CLASSES)
    hearing = heard_of(view, labels, constants, trees)
    return decide(hearing, labels, constants=constants)


def changes(verdict, given):
    confidence, best = verdict.posterior.max(dim=1)
    return (best != given) & (confidence >= 0.8), confidence, best


@pytest.mark.parametrize("trees", [False, True])
def test_nothing_is_changed_where_nothing_can_be_known(trees):
    """Labels that have nothing to do with the features: what had learned them changed 166 of 370 such ones."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(400, 10, generator=generator), torch.randint(CLASSES, (400,), generator=generator)
    trusted = torch.cat([(labels == label).nonzero().flatten()[:TRUSTED] for label in range(CLASSES)])
    noisy = torch.ones(400, dtype=torch.bool)
    noisy[trusted] = False
    verdict = judged(inputs, labels, labels, trusted, noisy, trees)
    assert int(changes(verdict, labels[noisy])[0].sum()) <= 3


def test_right_labels_of_overlapping_classes_are_kept():
    """Two thirds can be told from the features at best; a free noise matrix would call the others noise."""
    inputs, true, given, trusted, noisy = table(spread=2.5, rate=0.0)
    verdict = judged(inputs, true, given, trusted, noisy)
    assert (verdict.probabilities.argmax(dim=1) == true[noisy]).float().mean() < 0.75
    assert changes(verdict, given[noisy])[0].float().mean() <= 0.02


def many(classes, spread, count, each, seed=0):
    """Return features of many classes, their labels, the trusted rows, so many of each class, and the others."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(classes, (count,), generator=generator)
    inputs = torch.eye(classes)[true] * 3 + spread * torch.randn(count, classes, generator=generator)
    trusted = torch.cat([(true == label).nonzero().flatten()[:each] for label in range(classes)])
    noisy = torch.ones(count, dtype=torch.bool)
    noisy[trusted] = False
    return inputs, true, trusted, noisy, generator


@pytest.mark.parametrize("blur", [0.0, 1.5, 2.5])
def test_wrong_labels_of_classes_that_look_alike_are_found(blur):
    """Somebody who sees less than the judges labels everything: wrong labels follow looks, and seem to be no noise."""
    inputs, true, trusted, noisy, generator = many(classes=6, spread=0.9, count=1_500, each=15)
    seen = inputs + blur * torch.randn(inputs.shape, generator=generator)
    given = seen.argmax(dim=1) if blur else true
    labels = Labels(given[noisy], true[trusted], 6)
    verdict = decide(heard_of(View(inputs[noisy], inputs[trusted]), labels), labels, constants=QUICK)
    quality = verdict.posterior.gather(1, given[noisy, None])
    wrong = (given != true)[noisy].float().mean().item()
    assert 1 - quality.mean().item() == pytest.approx(wrong, abs=0.06)
    assert (verdict.posterior.argmax(dim=1) == true[noisy]).float().mean() > 0.9


def test_asymmetric_noise_of_many_overlapping_classes_is_found():
    """A matrix of ninety numbers is weighed by labels that it was not fitted to; a price for each number hid it."""
    inputs, true, trusted, noisy, generator = many(classes=10, spread=2.6, count=2_000, each=10)
    given = torch.multinomial(asymmetric_transition(10, 0.4)[true], 1, generator=generator).flatten()
    labels = Labels(given[noisy], true[trusted], 10)
    verdict = decide(heard_of(View(inputs[noisy], inputs[trusted]), labels), labels, constants=QUICK)
    assert 0.4 < verdict.transition.diagonal().mean() < 0.7


def test_one_rate_whose_wrong_labels_become_some_classes_rather_than_others(monkeypatch):
    """As many labels of each class are wrong, but not alike: a full matrix takes overlap of the classes for noise."""
    inputs, true, trusted, noisy, generator = many(classes=10, spread=2.2, count=4_000, each=10)
    towards = torch.rand(10, 10, generator=generator) * (1 - torch.eye(10))
    matrix = 0.6 * torch.eye(10) + 0.4 * towards / towards.sum(dim=1, keepdim=True)
    given = torch.multinomial(matrix[true], 1, generator=generator).flatten()
    labels = Labels(given[noisy], true[trusted], 10)
    hearing = heard_of(View(inputs[noisy], inputs[trusted]), labels)
    verdicts = [decide(hearing, labels, constants=QUICK)]
    monkeypatch.delitem(FAMILIES, "directed")
    verdicts.append(decide(hearing, labels, constants=QUICK))
    off, off_without = ((verdict.transition - matrix).abs().max() for verdict in verdicts)
    assert off < 0.12 < 0.15 < off_without
    right, right_without = (verdict.posterior.gather(1, true[noisy, None]).log().mean() for verdict in verdicts)
    assert right > right_without + 0.02


@pytest.mark.parametrize("wrong", [{}, {0: 1, 2: 3}, {0: 1, 2: 3, 4: 5}])
def test_each_class_has_a_rate_of_its_own(wrong):
    """Some classes become another, the rest are labelled right: a full matrix asked too much of ten trusted labels."""
    inputs, true, trusted, noisy, generator = many(classes=10, spread=1.8, count=4_000, each=10)
    given = torch.multinomial(asymmetric_transition(10, 0.4, wrong)[true], 1, generator=generator).flatten()
    labels = Labels(given[noisy], true[trusted], 10)
    verdict = decide(heard_of(View(inputs[noisy], inputs[trusted]), labels), labels, constants=QUICK)
    quality = verdict.posterior.gather(1, given[noisy, None]).squeeze(1)
    assert 1 - quality.mean().item() == pytest.approx((given != true)[noisy].float().mean().item(), abs=0.05)
    rates = 1 - verdict.transition.diagonal()
    found = [*wrong]
    assert all(rates[found] > 0.2)
    assert all(rates[[label for label in range(10) if label not in wrong]] < 0.15)


@pytest.mark.parametrize(("rate", "asymmetric"), [(0.4, False), (0.4, True)])
def test_wrong_labels_of_separable_classes_are_found(rate, asymmetric):
    inputs, true, given, trusted, noisy = table(spread=0.8, rate=rate, asymmetric=asymmetric)
    verdict = judged(inputs, true, given, trusted, noisy)
    changed, confidence, best = changes(verdict, given[noisy])
    right = best == true[noisy]
    wrong = (given != true)[noisy]
    assert (changed & wrong).sum() > 0.8 * wrong.sum()
    assert right[changed].float().mean() >= confidence[changed].mean() - 0.03
    quality = verdict.posterior.gather(1, given[noisy][:, None])
    assert (1 - quality.mean()).item() == pytest.approx(wrong.float().mean().item(), abs=0.04)


def test_one_trusted_example_a_class_is_enough_where_classes_are_separable():
    inputs, true, given, trusted, noisy = table(spread=0.5, rate=0.4)
    few = trusted[::TRUSTED]
    noisy = torch.ones_like(noisy)
    noisy[few] = False
    verdict = judged(inputs, true, given, few, noisy)
    assert (verdict.posterior.argmax(dim=1) == true[noisy]).float().mean() > 0.95


def test_balanced_trusted_rows_leave_skewed_classes_their_shares():
    """Nine in ten rows are of one class, and as many rows of each are trusted."""
    generator = torch.Generator().manual_seed(0)
    true = (torch.rand(1_000, generator=generator) < 0.1).long()
    inputs = true[:, None] * 1.5 + torch.randn(1_000, 2, generator=generator)
    trusted = torch.cat([(true == label).nonzero().flatten()[:TRUSTED] for label in range(2)])
    noisy = torch.ones(1_000, dtype=torch.bool)
    noisy[trusted] = False
    view, labels = View(inputs[noisy], inputs[trusted]), Labels(true[noisy], true[trusted], 2)
    verdict = decide(heard_of(view, labels), labels, constants=QUICK)
    assert verdict.posterior[:, 1].mean().item() == pytest.approx(true[noisy].float().mean().item(), abs=0.04)


def test_trees_are_not_asked_where_there_is_nothing_to_grow_on():
    inputs, true, given, trusted, noisy = table(spread=0.5, rate=0.2, count=60)
    verdict = judged(inputs, true, given, trusted, noisy)
    assert verdict.posterior.isfinite().all()


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("room", [{"most_learned": 300}, {"most_numbers": 300 * 5 * 2 * CLASSES}])
def test_examples_that_no_head_has_learned_from_are_judged_by_all(room, trees):
    """With room for 300 of 870 rows, 5 parts and 2 strengths the verdict stays about as good."""
    data = table(spread=0.8, rate=0.4)
    few = replace(QUICK, **room)
    verdict = judged(*data, trees, constants=few)
    _, true, _, _, noisy = data
    assert (verdict.posterior.argmax(dim=1) == true[noisy]).float().mean() > 0.95


def test_the_same_generator_gives_the_same_verdict():
    data = table(spread=1.0, rate=0.3, count=200)
    one, other = judged(*data), judged(*data)
    assert torch.equal(one.posterior, other.posterior)


def test_taking_the_noise_off_is_undone_by_the_matrix():
    """`p·T` of what `without_noise` returns is the prediction of the given label that it was made from."""
    transition = symmetric_transition(CLASSES, 0.3).float()
    p = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05]])
    found = without_noise(p @ transition, transition, torch.full((CLASSES,), 1 / 3), rounds=500)
    torch.testing.assert_close(found, p, atol=1e-3, rtol=0)


def test_every_group_of_judges_is_heard():
    assert len(mixtures_of(3)) == 7
    assert all(mixture.sum() == pytest.approx(1) for mixture in mixtures_of(3))


def heard(network_of, rate=0.4):
    """Return the verdict before and after a network is heard, where features tell little; and the truth."""
    inputs, true, given, trusted, noisy = table(spread=2.5, rate=rate)
    view, labels = View(inputs[noisy], inputs[trusted]), Labels(given[noisy], true[trusted], CLASSES)
    hearing = heard_of(view, labels)
    before = decide(hearing, labels, constants=QUICK)
    return before, decide(hearing, labels, network_of(true[noisy], given[noisy]), QUICK), true[noisy]


def test_a_network_that_knows_more_is_heard():
    before, after, true = heard(lambda true, given: 4 * torch.eye(CLASSES)[true])
    right = [(one.posterior.argmax(dim=1) == true).float().mean() for one in (before, after)]
    assert right[0] < 0.8
    assert right[1] > 0.95
    torch.testing.assert_close(after.posterior.sum(dim=1), torch.ones(len(true)))


def test_a_network_that_knows_nothing_changes_little():
    """Sure of anything, and wrong two times in three: the noisy labels tell."""
    generator = torch.Generator().manual_seed(3)

    def sure(true, given):
        return 9 * torch.eye(CLASSES)[torch.randint(CLASSES, (len(true),), generator=generator)]

    before, after, true = heard(sure)
    right = [(one.probabilities.argmax(dim=1) == true).float().mean() for one in (before, after)]
    assert right[1] > right[0] - 0.05
    assert (after.probabilities - before.probabilities).abs().mean() < 0.1


@pytest.mark.parametrize(("spread", "rate", "asymmetric"), [(0.8, 0.3, False), (0.8, 0.4, True), (2.5, 0.0, False)])
def test_without_trusted_labels_no_change_claims_too_much(spread, rate, asymmetric):
    """Labels are right more often than wrong in any one way; where classes overlap, nothing tells that from noise."""
    inputs, true, given, _, _ = table(spread, rate, asymmetric=asymmetric)
    nobody, everybody = torch.zeros(0, dtype=torch.long), torch.ones(len(true), dtype=torch.bool)
    verdict = judged(inputs, true, given, nobody, everybody)
    changed, confidence, best = changes(verdict, given)
    if spread > 2:
        assert changed.float().mean() <= 0.02
    else:
        assert (best == true).float().mean() > 0.93
        right = (best == true)[changed].float().mean() if changed.any() else 1.0
        assert right >= confidence[changed].mean() - 0.02 if changed.any() else True
    diagonal = verdict.transition.diagonal()
    assert (verdict.transition <= diagonal[:, None] + 1e-6).all()


def test_a_class_without_a_trusted_label_is_found_all_the_same():
    """A head of the trusted labels alone would never predict the class that they lack."""
    inputs, true, given, trusted, noisy = table(spread=0.8, rate=0.3)
    verdict = judged(inputs, true, given, trusted[true[trusted] != 2], noisy)
    lacking = true[noisy] == 2
    assert (verdict.posterior.argmax(dim=1) == true[noisy])[lacking].float().mean() > 0.9


def test_labels_that_nobody_can_predict_are_kept_also_where_they_are_few():
    """Forty right labels of which judges see nothing: noise would explain what they do not know as well as anything.

    Trusted labels that heads have learned had spoken for it, and the few noisy ones counted as a hundred: 13 of 34 were
    changed. Three trusted labels a class are dealt, so that each is judged by heads that have not seen it.
    """
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(40, 60, generator=generator), torch.arange(40) % 2
    trusted, noisy = torch.arange(6), torch.arange(40) >= 6
    view, of = View(inputs[noisy], inputs[trusted]), Labels(labels[noisy], labels[trusted], 2)
    hearing = heard_of(view, of)
    assert bool(hearing.unseen.all())
    assert int(changes(decide(hearing, of, constants=QUICK), labels[noisy])[0].sum()) == 0


def test_networks_weigh_the_hypotheses_by_what_they_see():
    """Judges that see nothing leave it open whether labels are noise; networks that predict them all rule noise out."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(200, 5, generator=generator), torch.arange(200) % 2
    view, of = View(inputs[6:], inputs[:6]), Labels(labels[6:], labels[:6], 2)
    hearing = heard_of(view, of)
    before = decide(hearing, of, constants=QUICK)
    after = decide(hearing, of, 4 * torch.eye(2)[labels[6:]], constants=QUICK)
    quality = [verdict.posterior.gather(1, labels[6:, None]).mean().item() for verdict in (before, after)]
    assert quality[0] < 0.9 < 0.99 < quality[1]


def test_the_only_trusted_label_of_a_class_is_learned_by_all():
    labels = Labels(torch.arange(60) % 3, torch.tensor([0, 0, 0, 1, 2, 2]), 3)
    folds = deal(labels, torch.Generator().manual_seed(0), QUICK)
    assert (folds.trusted < 0).tolist() == [False, False, False, True, False, False]
    for part in range(folds.parts):
        learned = labels.trusted[folds.trusted != part]
        assert len(learned.unique()) == 3, "no part has all trusted labels of a class"


def test_changes_are_on_the_safe_side_of_what_few_trusted_labels_allow():
    """The power of the claims is at most 1; it says less where it stands on three trusted labels a class than on 30."""
    powers = []
    for trusted_count in (3, 30):
        inputs, true, given, _, _ = table(spread=1.5, rate=0.4)
        trusted = torch.cat([(true == label).nonzero().flatten()[:trusted_count] for label in range(CLASSES)])
        noisy = torch.ones(len(true), dtype=torch.bool)
        noisy[trusted] = False
        powers.append(judged(inputs, true, given, trusted, noisy, trees=False).caution.item())
    assert 0.5 < powers[0] < powers[1] <= 1.0


def test_networks_that_know_everything_outweigh_judges_that_know_nothing():
    """Ten classes, 990 labels that judges cannot tell: log 10 a label, e^2000 in all, more than a float can hold."""
    inputs = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(1000) % 10
    view, of = View(inputs[10:], inputs[:10]), Labels(labels[10:], labels[:10], 10)
    hearing = heard_of(view, of)
    verdict = decide(hearing, of, 20 * torch.eye(10)[labels[10:]], constants=QUICK)
    assert verdict.posterior.gather(1, labels[10:, None]).min() > 0.99


@pytest.mark.parametrize("reached", [1e30, float("nan")])
def test_a_search_that_goes_too_far_leaves_the_verdict_finite(reached, monkeypatch):
    """On 50,000 images it ended in no number under a hypothesis that weighed nothing, and with it every target."""
    inputs, true, given, trusted, noisy = table(spread=2.5, rate=0.4)
    view, labels = View(inputs[noisy], inputs[trusted]), Labels(given[noisy], true[trusted], CLASSES)
    hearing = heard_of(view, labels)

    def too_far(optimizer, closure):
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0].fill_(reached)

    monkeypatch.setattr(torch.optim.LBFGS, "step", too_far)
    verdict = decide(hearing, labels, 4 * torch.eye(CLASSES)[true[noisy]], QUICK)
    assert all(part.isfinite().all() for part in verdict)
    torch.testing.assert_close(verdict.posterior.sum(dim=1), torch.ones(len(labels.given)))
