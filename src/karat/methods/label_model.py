"""The label model: what the true classes are, given a network's features, all given labels and the trusted ones.

A linear head `p_i = softmax(τ·Wᵀ[h_i, 1])` on the features h and a noise matrix `T[true, given]` explain the labels:

    max over W, T, τ of   Σ_i log Σ_c p_i(c)·T[c, given_i]  +  Σ_t log p_t(trusted_t)  −  s·‖W − W0‖²

W0 is the network's own last layer, s the strength of this prior. Each example is judged by a head that was fitted
without its label (cross-fitting), so the label counts once: in the posterior `q_i(c) ∝ p_i(c)·T[c, given_i]`. T, τ
and s are those under which the labels that the heads have not seen are most likely: nobody has to know the noise.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

FOLDS = 5
STRENGTHS = (3.0, 30.0, 300.0)
ROUNDS = 4  # of heads, then T and τ
MOST_NUMBERS = 30_000_000  # logits of all heads at once; where there would be more, heads are fitted on fewer examples
SMOOTHING = 0.1  # labels that T has seen of every pair before the first real one


class Evidence(NamedTuple):
    """Features of the noisy and trusted examples and their labels, on one device."""

    noisy: Tensor
    given_labels: Tensor
    trusted: Tensor
    trusted_labels: Tensor


class LabelModel(NamedTuple):
    """What `fit_label_model` found."""

    probabilities: Tensor
    """p: the classes of the noisy examples, each judged without its own label."""
    posterior: Tensor
    """q: the classes of the noisy examples, with their labels."""
    transition: Tensor
    """T[true, given]"""
    weight: Tensor
    bias: Tensor


def noise_posterior(probabilities: Tensor, given_labels: Tensor, transition: Tensor) -> Tensor:
    """Return `q(c) ∝ p(c)·T[c, given]`.

    >>> noise_posterior(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
    tensor([[0.7500, 0.2500]])
    """
    joint = probabilities * transition.T[given_labels]
    return joint / joint.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)


def start_transition(classes: int, diagonal: float) -> Tensor:
    """Return a first guess at T: so much of every class keeps its label, the rest is spread over all classes.

    >>> start_transition(2, 0.5)
    tensor([[0.7500, 0.2500],
            [0.2500, 0.7500]])
    """
    return torch.full((classes, classes), (1 - diagonal) / classes) + diagonal * torch.eye(classes)


def fit_label_model(
    evidence: Evidence, classes: int, transition: Tensor, head: tuple[Tensor, Tensor] | None, seed: int = 0
) -> LabelModel:
    """Fit heads, matrix and temperature; `head` is W0 as (weight, bias), None starts from the trusted labels alone.

    `transition` is where the search for T starts; without a head it starts from what the trusted labels say instead.
    """
    mean, deviation = evidence.noisy.mean(dim=0), evidence.noisy.std(dim=0) + 1e-4
    noisy, trusted = ((part - mean) / deviation for part in (evidence.noisy, evidence.trusted))
    noisy, trusted = (torch.cat([part, part.new_ones(len(part), 1)], dim=1) for part in (noisy, trusted))
    scaled = evidence._replace(noisy=noisy, trusted=trusted)
    if head is None:
        start = _trusted_head(scaled, classes)
        transition = _matrix((noisy @ start).softmax(dim=1), evidence.given_labels, transition.to(noisy), rounds=50)
    else:
        weight, bias = head
        start = torch.cat([weight.T * deviation[:, None], (bias + weight @ mean)[None]])
    heads, logits, transition, temperature = _best_strength(scaled, start, transition.to(noisy), seed)
    probabilities = (logits * temperature).softmax(dim=1)
    average = heads.mean(dim=1) * temperature
    weight = (average[:-1] / deviation[:, None]).T
    return LabelModel(
        probabilities,
        noise_posterior(probabilities, evidence.given_labels, transition),
        transition,
        weight,
        average[-1] - weight @ mean,
    )


def _best_strength(evidence: Evidence, start: Tensor, transition: Tensor, seed: int) -> tuple[Tensor, ...]:
    """Fit heads of all folds and strengths at once; return those of the best strength.

    Best is the strength under which the labels that its heads have not seen are most likely.
    """
    count, classes = len(evidence.noisy), transition.shape[0]
    columns = FOLDS * len(STRENGTHS)
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).to(start.device)
    used = shuffled[: max(FOLDS * classes, MOST_NUMBERS // (columns * classes))]
    folds = torch.arange(len(used), device=start.device) % FOLDS
    features, given = evidence.noisy[used], evidence.given_labels[used]
    outside = folds[:, None] != torch.arange(FOLDS, device=start.device)  # which heads learn from which examples
    strengths = torch.tensor(STRENGTHS).to(start)

    heads = start[:, None, None].repeat(1, FOLDS, len(STRENGTHS), 1)
    matrices = transition.repeat(len(STRENGTHS), 1, 1)
    temperatures = start.new_ones(len(STRENGTHS))
    for _ in range(ROUNDS):
        heads = _descend(heads, evidence, start, features, given, outside, strengths, matrices)
        logits = _at(features, heads)[torch.arange(len(used), device=start.device), folds]
        temperatures, matrices = _calibrate(logits, given, temperatures, matrices)
    losses = _corrected(logits * temperatures[:, None], given, matrices).mean(dim=0)
    best = int(losses.argmin())
    # Examples that no head learned from are judged by all heads together.
    all_logits = _at(evidence.noisy, heads[:, :, best : best + 1].mean(dim=1, keepdim=True))[:, 0, 0]
    all_logits[used] = logits[:, best]
    return heads[:, :, best], all_logits, matrices[best], temperatures[best]


def _at(features: Tensor, heads: Tensor) -> Tensor:
    """Return logits[example, fold, strength, class]."""
    return (features @ heads.flatten(1)).unflatten(1, heads.shape[1:])


def _corrected(logits: Tensor, given: Tensor, matrices: Tensor) -> Tensor:
    """Return −log Σ_c p(c)·T[c, given], for logits[..., strength, class] and one matrix a strength."""
    reached = matrices.transpose(1, 2)[:, given].transpose(0, 1)  # [example, strength, class]
    if logits.dim() == 4:
        reached = reached[:, None]
    tiny = torch.finfo(logits.dtype).tiny
    return -(logits.softmax(dim=-1) * reached).sum(dim=-1).clamp(min=tiny).log()


def _descend(
    heads: Tensor,
    evidence: Evidence,
    start: Tensor,
    features: Tensor,
    given: Tensor,
    outside: Tensor,
    strengths: Tensor,
    matrices: Tensor,
) -> Tensor:
    """Take some steps of L-BFGS with all heads."""
    heads = heads.detach().requires_grad_()
    optimizer = torch.optim.LBFGS([heads], max_iter=10, line_search_fn="strong_wolfe")
    share = outside / len(given)
    targets = F.one_hot(evidence.trusted_labels, start.shape[1]).to(start)[:, None, None]

    def objective() -> Tensor:
        optimizer.zero_grad()
        noisy = (_corrected(_at(features, heads), given, matrices) * share[:, :, None]).sum()
        trusted = -(_at(evidence.trusted, heads).log_softmax(dim=-1) * targets).sum() / len(given)
        moved = (heads - start[:, None, None])[:-1].square().sum(dim=(0, 3))
        loss = noisy + trusted + (moved * strengths).sum() / len(given)
        loss.backward()
        return loss

    optimizer.step(objective)
    return heads.detach()


def _calibrate(logits: Tensor, given: Tensor, temperatures: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Fit temperature and matrix of each strength to labels that its heads have not seen, in turns."""
    logits = logits.detach()
    for _ in range(3):
        temperatures = _descend_temperatures(logits, given, temperatures, matrices)
        probabilities = (logits * temperatures[:, None]).softmax(dim=-1)
        matrices = torch.stack(
            [_matrix(probabilities[:, place], given, matrix, rounds=5) for place, matrix in enumerate(matrices)]
        )
    return temperatures, matrices


def _descend_temperatures(logits: Tensor, given: Tensor, temperatures: Tensor, matrices: Tensor) -> Tensor:
    scale = temperatures.log().requires_grad_()
    optimizer = torch.optim.LBFGS([scale], max_iter=5, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = _corrected(logits * scale.exp()[:, None], given, matrices).mean(dim=0).sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return scale.detach().clamp(-2, 2).exp()


def _matrix(probabilities: Tensor, given: Tensor, transition: Tensor, rounds: int) -> Tensor:
    """Take rounds of expectation-maximisation for T with p held still."""
    for _ in range(rounds):
        posterior = noise_posterior(probabilities, given, transition)
        counts = torch.zeros_like(transition).index_add_(1, given, posterior.T) + SMOOTHING
        transition = counts / counts.sum(dim=1, keepdim=True)
    return transition


def _trusted_head(evidence: Evidence, classes: int) -> Tensor:
    """Fit a head to the trusted labels alone, held at 0 by one unit of strength."""
    head = evidence.noisy.new_zeros(evidence.noisy.shape[1], classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([head], max_iter=50, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(evidence.trusted @ head, evidence.trusted_labels, reduction="sum")
        loss = loss + head[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return head.detach()
