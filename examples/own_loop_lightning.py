"""The data coefficients in a LightningModule: the training of own_loop_torch.py, with manual optimization.

pip install lightning
python examples/own_loop_lightning.py [--steps 200]
"""

import argparse
import logging
import warnings

import lightning
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from karat import data_coefficients
from own_loop_torch import Digits, load


class Reweighed(lightning.LightningModule):
    """Weigh the losses of a noisy batch by what they do for the trusted batch."""

    def __init__(self, trusted: tuple[Tensor, Tensor], steps: int) -> None:
        super().__init__()
        self.automatic_optimization = False  # the coefficients need the optimizer before the loss is known
        self.network = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
        self.register_buffer("trusted_x", trusted[0])
        self.register_buffer("trusted_y", trusted[1])
        self.steps = steps
        self.shares: list[float] = []

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[torch.optim.lr_scheduler.LRScheduler]]:
        """Return SGD with a cosine schedule."""
        optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)]

    def training_step(self, batch: list[Tensor], index: int) -> None:
        """Take one step; `batch` also says which labels are right, to report how well the weights find them."""
        x, y, right = batch
        optimizer, trusted = self.optimizers(), (self.trusted_x, self.trusted_y)
        # Lightning wraps the optimizer; the look-ahead needs torch's own.
        weights = data_coefficients(self.network, optimizer.optimizer, (x, y), trusted).weights
        loss = (weights * cross_entropy(self.network(x), y, reduction="none")).sum()
        loss = loss + cross_entropy(self.network(self.trusted_x), self.trusted_y)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        self.lr_schedulers().step()
        self.shares.append(weights[right].sum().item())


def train(data: Digits, steps: int, seed: int = 0) -> tuple[float, float]:
    """Return the test accuracy, and the share of the weight on right labels in the second half of the steps."""
    torch.manual_seed(seed)
    model = Reweighed((data.inputs[data.trusted], data.true[data.trusted]), steps)
    given, true = data.given[data.noisy], data.true[data.noisy]
    noisy = TensorDataset(data.inputs[data.noisy], given, given == true)
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on workers of the loader, which this small set does not need
        trainer.fit(model, DataLoader(noisy, batch_size=100, shuffle=True, drop_last=True))
    predicted = model.eval().network(data.inputs[data.test]).argmax(dim=1)
    last = model.shares[steps // 2 :]
    return (predicted == data.true[data.test]).float().mean().item(), sum(last) / len(last)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    accuracy, share = train(load(), parser.parse_args().steps)
    print(f"data coefficients  test accuracy {accuracy:6.1%}   weight on right labels {share:6.1%}")
