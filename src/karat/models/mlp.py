"""A multilayer perceptron for vectors: tables and embeddings."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Classify vectors by `depth` hidden layers of linear map, BatchNorm, ReLU and dropout; images are flattened.

    >>> import torch
    >>> MLP(in_features=20, classes=3)(torch.zeros(2, 20)).shape
    torch.Size([2, 3])
    """

    def __init__(self, in_features: int, classes: int, width: int = 256, depth: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = in_features
        for _ in range(depth):
            # BatchNorm's shift takes the place of the linear map's bias
            layers += [
                nn.Linear(before, width, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Dropout(dropout),
            ]
            before = width
        self.hidden = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, examples: Tensor) -> Tensor:
        """Return one row of logits for every example."""
        return self.head(self.hidden(examples.flatten(1)))
