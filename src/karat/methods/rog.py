"""RoG (Lee et al. 2019): a robust generative classifier on the hidden features of a trained network."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from karat.algorithm.network import evaluation_mode
from karat.errors import UserError
from karat.methods.method import Finished, Method, Task
from karat.methods.settings import RoGSettings
from karat.methods.shared.last_layer import hidden
from karat.methods.step import Batch, Learner, StepResult
from karat.methods.supervised import supervised

ROUNDS = 30  # of concentration; the subsets stop changing after about 10


def shrunk_covariance(centred: Tensor) -> Tensor:
    """Return Ledoit and Wolf's (2004) estimate `(1−s)·S + s·(tr S / d)·I`, which can be inverted for few examples, too.

    S is the covariance of the centred rows, `s = min(1, Σ_k ‖x_k x_kᵀ − S‖² / (n²·‖S − (tr S / d)·I‖²))`.
    """
    count, size = centred.shape
    covariance = centred.T @ centred / count
    scale = covariance.trace() / size
    identity = torch.eye(size, dtype=centred.dtype, device=centred.device)
    distance = (covariance - scale * identity).square().sum()
    spread = centred.square().sum(dim=1).square().sum() - count * covariance.square().sum()
    # A feature that is always 0 must not make the matrix singular, however many examples there are.
    share = (spread / count**2 / distance.clamp(min=torch.finfo(centred.dtype).tiny)).clamp(1e-6, 1)
    return (1 - share) * covariance + share * scale.clamp(min=1e-12) * identity


def concentrated(features: Tensor, count: int) -> Tensor:
    """Return the rows of the `count` most concentrated examples: minimum covariance determinant.

    It starts from the examples nearest to the median. Each round keeps those with the smallest Mahalanobis distance
    from the mean of the ones kept before.
    """
    kept = (features - features.median(dim=0).values).square().sum(dim=1).argsort()[:count]
    for _ in range(ROUNDS):
        mean = features[kept].mean(dim=0)
        centred = features - mean
        precision = torch.linalg.inv(shrunk_covariance(centred[kept]))
        nearest = (centred @ precision * centred).sum(dim=1).argsort()[:count]
        if torch.equal(nearest.sort().values, kept.sort().values):
            break
        kept = nearest
    return kept


def discriminant(features: Tensor, labels: Tensor, classes: int, kept: float = 0.5) -> tuple[Tensor, Tensor]:
    """Return W and b of linear discriminant analysis, `xᵀΣ⁻¹μ_c − ½·μ_cᵀΣ⁻¹μ_c + log π_c`, robustly.

    μ_c, π_c and the common Σ are the means, the shares and the pooled covariance of the examples that are kept.
    """
    subsets = []
    for label in range(classes):
        rows = (labels == label).nonzero().squeeze(1)
        subsets.append(
            features[rows[concentrated(features[rows], max(1, round(kept * len(rows))))]] if len(rows) else features[:0]
        )
    # A class that nobody was given has the mean of all and the prior of one example.
    means = torch.stack([subset.mean(dim=0) if len(subset) else features.mean(dim=0) for subset in subsets])
    sizes = torch.tensor([max(1, len(subset)) for subset in subsets]).to(features)
    covariance = shrunk_covariance(torch.cat([subset - mean for subset, mean in zip(subsets, means, strict=True)]))
    weight = torch.linalg.solve(covariance, means.T).T
    return weight, (sizes / sizes.sum()).log() - (weight * means).sum(dim=1) / 2


def generative_classifier(
    model: nn.Module, inputs_by_rows: Callable[[Tensor], Tensor], given_labels: Tensor, classes: int, kept: float = 0.5
) -> nn.Module:
    """Return a copy of a trained model whose last linear layer is the discriminant of its features, see `discriminant`.

    The copy has the same parts, so its weights are saved and loaded like the model's own.
    """
    copied = deepcopy(model)
    parts = []
    with evaluation_mode(copied):
        for rows in torch.arange(len(given_labels)).split(512):
            found = hidden(copied, inputs_by_rows(rows))
            parts.append(found.features.double().cpu())
    head = found.head
    if found.head_output is not found.logits:
        raise UserError("RoG replaces the last linear layer, but this network goes on after it: choose another model.")
    weight, bias = discriminant(torch.cat(parts), given_labels.cpu(), classes, kept)
    with torch.no_grad():
        head.weight.copy_(weight)
        if head.bias is None:
            head.bias = nn.Parameter(head.weight.new_zeros(classes), requires_grad=head.weight.requires_grad)
        head.bias.copy_(bias)
    return copied


class RoG(Method):
    """Train on the given labels and put the generative classifier in the place of the last layer at the end.

    The paper adds up the classifiers of several layers, with weights from a validation set; this is the last layer's.
    It starts from a random subset of each class, and does not shrink covariances.
    """

    def __init__(self, task: Task, settings: RoGSettings) -> None:
        super().__init__(task, settings)
        self.kept = settings.kept

    def step(self, learner: Learner, batch: Batch, settings: RoGSettings, generator: torch.Generator) -> StepResult:
        """Take a plain step."""
        return supervised(learner, batch, None, generator)

    def finish(self, model: nn.Module) -> Finished:
        """Return the model with the generative classifier."""
        task = self.task
        return Finished(generative_classifier(model, task.noisy_inputs, task.given_labels, task.classes, self.kept))
