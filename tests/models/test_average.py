"""The moving average of weights: its formula, ties, buffers and exact resumption."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from karat.errors import UserError
from karat.models.average import WeightAverage


class Network(nn.Module):
    """A network with all that is hard to average: BatchNorm counters, tied weights, a hidden buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 3, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("hidden", torch.zeros(2), persistent=False)

    def forward(self, inputs):
        return self.last(self.norm(self.first(inputs)))


def disturb(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
            else:
                tensor.add_(seed)


def tensors(model):
    return [*model.parameters(), *model.buffers()]


@settings(deadline=None)
@given(st.floats(0, 0.999), st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_the_average_is_its_recursion(decay, values):
    """a[t+1] = d·a[t] + (1−d)·value[t] with d = min(decay, (1+t)/(10+t)), here from a[0] = 5."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 5.0)
    average, expected = WeightAverage(model, decay), 5.0
    for t, value in enumerate(values):
        nn.init.constant_(model.weight, value)
        average.update(model)
        d = min(decay, (1 + t) / (10 + t))
        expected = d * expected + (1 - d) * value
    assert average.module.weight.item() == pytest.approx(expected, abs=1e-12)


def test_float_buffers_are_averaged_and_counters_copied():
    """The first update has d = 1/10: 0.1·old + 0.9·new for running means; the batch counter is simply 7."""
    model = Network()
    average = WeightAverage(model, 0.9)
    old = average.module.norm.running_mean.clone()
    disturb(model, 7)
    average.update(model)
    torch.testing.assert_close(average.module.norm.running_mean, 0.1 * old + 0.9 * model.norm.running_mean)
    torch.testing.assert_close(average.module.hidden, 0.9 * model.hidden)
    assert average.module.norm.num_batches_tracked.item() == 7


def test_decay_zero_is_the_model_itself():
    model = Network()
    average = WeightAverage(model, 0.0)
    for seed in range(3):
        disturb(model, seed)
        average.update(model)
    assert all(torch.equal(a, b) for a, b in zip(tensors(average.module), tensors(model), strict=True))


def test_tied_weights_stay_tied_and_move_once():
    """One update with d = 1/10 gives 0.1·old + 0.9·new; moved twice it would be 0.01·old + 0.99·new."""
    model = Network()
    average = WeightAverage(model, 0.9)
    old = model.first.weight.detach().clone()
    disturb(model, 1)
    average.update(model)
    assert average.module.last.weight is average.module.first.weight
    torch.testing.assert_close(average.module.last.weight, 0.1 * old + 0.9 * model.first.weight.detach())


def test_the_module_is_separate_in_evaluation_mode_and_without_gradients():
    model = Network().train()
    model(torch.randn(4, 3)).sum().backward()
    average = WeightAverage(model, 0.9)
    before = deepcopy(average.module.state_dict())
    disturb(model, 1)
    assert all(torch.equal(before[name], value) for name, value in average.module.state_dict().items())
    assert not any(module.training for module in average.module.modules())
    assert not any(parameter.requires_grad for parameter in average.module.parameters())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_resumed_average_goes_on_exactly():
    """Save after 3 of 6 updates, load into a new average: every tensor, hidden buffers too, ends equal."""
    model = Network()
    whole = WeightAverage(model, 0.9)
    resumed = WeightAverage(Network(), 0.9)
    for seed in range(6):
        if seed == 3:
            resumed.load_state_dict(deepcopy(whole.state_dict()))
        disturb(model, seed)
        whole.update(model)
        if seed >= 3:
            resumed.update(model)
    assert resumed.updates == whole.updates == 6
    assert all(torch.equal(a, b) for a, b in zip(tensors(resumed.module), tensors(whole.module), strict=True))


def test_loading_copies():
    source, target = WeightAverage(Network(), 0.9), WeightAverage(Network(), 0.9)
    target.load_state_dict(source.state_dict())
    disturb(source.module, 1)
    assert not torch.equal(source.module.first.weight, target.module.first.weight)


def test_another_model_and_an_impossible_decay_are_refused():
    with pytest.raises(UserError, match="another model"):
        WeightAverage(Network(), 0.9).load_state_dict(WeightAverage(nn.Linear(3, 3), 0.9).state_dict())
    with pytest.raises(UserError, match=r"\[0, 1\)"):
        WeightAverage(Network(), 1.0)
