"""Early-learning regularisation against its formula, its memory and its gradient."""

import copy

import pytest
import torch
from harness import CLASSES, COUNT, batch, learner, network, stepped, task
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.elr import EarlyLearning, ElrSettings

SETTINGS = ElrSettings()


def start():
    """Return a method whose memory is not empty."""
    method = EarlyLearning(task(), SETTINGS)
    method.targets = torch.rand(COUNT, CLASSES, generator=torch.Generator().manual_seed(1)).softmax(dim=1)
    return method


def test_step_descends_the_formula_with_the_updated_memory():
    """t <- 0.7 t + 0.3 p, then CE + 3·mean log(1 − Σ p t); the harness's probabilities are inside the clamp."""
    module, data, method = network(), batch(), start()
    before = method.targets.double()
    predicted = stepped_prediction(module, data)
    targets = 0.7 * before[:10] + 0.3 * predicted

    def loss(bare):
        logits = bare(data.noisy_inputs)
        agreement = (logits.softmax(dim=1) * targets).sum(dim=1)
        return cross_entropy(logits, data.given_labels) + 3 * (1 - agreement).log().mean()

    expected = stepped(module, loss)
    method.step(learner(module), data, SETTINGS, torch.Generator())
    # the memory is float32, hence the tolerance
    torch.testing.assert_close(module.state_dict(), expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(method.targets[:10], targets.float())
    assert torch.equal(method.targets[10:], before[10:].float())


def stepped_prediction(module, data):
    """Return the training-mode prediction without moving the BatchNorm statistics."""
    saved = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        predicted = module(data.noisy_inputs).softmax(dim=1)
    module.load_state_dict(saved)
    assert ((predicted > 1e-4) & (predicted < 1 - 1e-4)).all()
    return predicted


def test_loss_stays_finite_for_a_sure_network():
    """With ε = 1e-4: p = (1−ε, ε, ε, ε), t = 0.7·(1, 0, 0, 0) + 0.3·p/Σp, so 1 − <p, t> ≈ ε + 0.3·3ε, log −8.568."""
    module = network()
    with torch.no_grad():
        module[-1].bias[0] = 1e4
    method = EarlyLearning(task(), SETTINGS)
    method.targets[:, 0] = 1
    result = method.step(learner(module), batch(), SETTINGS, torch.Generator())
    assert result.losses["regulariser"].item() == pytest.approx(-8.568, abs=0.002)
    assert all(parameter.isfinite().all() for parameter in module.parameters())


def test_memory_survives_a_checkpoint():
    method, resumed = start(), EarlyLearning(task(), SETTINGS)
    method.step(learner(network()), batch(), SETTINGS, torch.Generator())
    resumed.load_state_dict(copy.deepcopy(method.state_dict()))
    modules = network(), network()
    for one, module in zip((method, resumed), modules, strict=True):
        one.step(learner(module), batch(), SETTINGS, torch.Generator())
    torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict(), rtol=0, atol=0)
    assert torch.equal(method.targets, resumed.targets)


@pytest.mark.parametrize("wrong", [{"memory": 1.0}, {"memory": -0.1}, {"weight": -1.0}])
def test_illegal_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        ElrSettings(**wrong)
