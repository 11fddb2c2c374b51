"""Fine-tuning on the trusted examples after plain training."""

import pytest
import torch
from harness import batch, learner, network, stepped, task
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.method import Phase
from karat.methods.step import Progress
from karat.methods.trusted_finetune import TrustedFinetune, TrustedFinetuneSettings


@pytest.mark.parametrize("phase", [0, 1])
def test_first_the_given_labels_then_the_trusted_ones(phase):
    module, data = network(), batch(progress=Progress(0, 1, 1, phase))
    inputs, labels = [(data.noisy_inputs, data.given_labels), (data.trusted_inputs, data.trusted_labels)][phase]
    expected = stepped(module, lambda bare: cross_entropy(bare(inputs), labels))
    settings = TrustedFinetuneSettings()
    TrustedFinetune(task(), settings).step(learner(module), data, settings, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected, rtol=0, atol=0)


def test_fine_tuning_goes_on_from_the_trained_weights_at_a_lower_rate():
    settings = TrustedFinetuneSettings(finetune_share=0.25, rate=0.5)
    phases = TrustedFinetune(task(), settings).phases(settings)
    assert phases == (Phase(0.75, fresh=True, rate=1.0), Phase(0.25, fresh=False, rate=0.5))


@pytest.mark.parametrize("wrong", [{"finetune_share": 0.0}, {"finetune_share": 1.0}, {"rate": 0.0}])
def test_illegal_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        TrustedFinetuneSettings(**wrong)
