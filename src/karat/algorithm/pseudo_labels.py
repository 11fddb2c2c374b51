"""Line 2 of Algorithm 1: pseudo labels from several views, and the consistency that makes them sharp."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def pseudo_labels(
    logits: Sequence[Tensor], temperature: float, normalize: bool = False, gradient: bool = False
) -> Tensor:
    """Average the predictions over the views and sharpen the average (eq. 3).

    `Pr = mean_k softmax(z_k)`, `g = Pr^(1/τ) / Σ_j Pr_j^(1/τ)`; a constant unless `gradient` is set. `normalize`: as in
    `log_probability`.

    >>> views = [torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])]
    >>> pseudo_labels(views, temperature=0.5)
    tensor([[0.8326, 0.1674]])
    """
    log_probabilities = torch.stack([log_probability(z, normalize) for z in logits])
    log_average = torch.logsumexp(log_probabilities, dim=0) - math.log(len(logits))
    sharpened = torch.softmax(log_average / temperature, dim=1)
    return sharpened if gradient else sharpened.detach()


def log_probability(logits: Tensor, normalize: bool = False) -> Tensor:
    """Return the log-softmax, of the logits divided by their root mean square over the batch if asked."""
    if normalize:
        # The smallest normal number keeps a batch of all-zero logits (a fresh zero-initialised head) finite.
        tiny = torch.finfo(logits.dtype).tiny
        logits = logits * torch.rsqrt(logits.square().mean() + tiny)
    return F.log_softmax(logits, dim=1)


def kl_consistency(weak: Tensor, strong: Sequence[Tensor], gradient: Literal["both", "augmented"] = "both") -> Tensor:
    """Return the mean of `KL(Φ(x) ‖ Φ(x̂))` over the batch and the strong views (eq. 4).

    >>> kl_consistency(torch.zeros(1, 2), [torch.zeros(1, 2)])
    tensor(0.)
    """
    target = F.log_softmax(weak.detach() if gradient == "augmented" else weak, dim=1)
    predicted = F.log_softmax(torch.cat(list(strong)), dim=1)
    return F.kl_div(predicted, target.repeat(len(strong), 1), reduction="batchmean", log_target=True)
