"""What every network promises: shapes, a reproducible start, and errors with their remedy."""

import re

import pytest
import torch
from torch import nn

from karat.errors import UserError
from karat.models import MLP, Fast, SmallResNet, build_model, parameter_count

IMAGE_NETWORKS = [
    "wrn-10-1", "wrn-16-2", "resnet-11", "resnet-29", "vgg-13", "densenet-22", "timm:test_resnet", "small", "fast-4",
    "mlp",
]  # fmt: skip


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 28, 32])
def test_images_become_one_row_of_logits_each(name: str, channels: int, size: int) -> None:
    model = build_model(name, (channels, size, size), classes=7)
    assert model(torch.randn(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize(
    "name", ["wrn-10-1", "resnet-11", "vgg-13", "densenet-22", "test_resnet", "small", "fast-4", "mlp"]
)
def test_images_need_not_be_square(name: str) -> None:
    model = build_model(name, (1, 8, 20), classes=3)
    assert model(torch.randn(2, 1, 8, 20)).shape == (2, 3)


def test_auto_follows_the_data() -> None:
    assert isinstance(build_model("auto", (3, 8, 8), classes=2), Fast)
    assert isinstance(build_model("auto", (3, 7, 8), classes=2), SmallResNet)
    assert isinstance(build_model("auto", (20,), classes=2), MLP)


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_the_global_seed_fixes_the_initial_parameters(name: str) -> None:
    def parameters(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(build_model(name, (3, 8, 8), classes=5).parameters())

    assert torch.equal(parameters(0), parameters(0))
    assert not torch.equal(parameters(0), parameters(1))


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    """A parameter that no output depends on would have no gradient, and count for nothing; a frozen one has none."""
    model = build_model(name, (1, 8, 8), classes=3)
    model(torch.randn(4, 1, 8, 8)).square().sum().backward()
    assert all((parameter.grad is not None) == parameter.requires_grad for parameter in model.parameters())


# torch itself scripts its decompositions when forward mode is first used
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_forward_mode_agrees_with_reverse_mode(name: str) -> None:
    """The meta step takes one Jacobian-vector product: for any u and v, u·(J v) = (u J)·v, in float64."""
    torch.manual_seed(0)
    model = build_model(name, (1, 8, 8), classes=3).double()
    images = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    parameters = {key: value for key, value in model.named_parameters() if value.requires_grad}
    v = {key: torch.randn_like(value) for key, value in parameters.items()}

    def logits(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        buffers = {key: value.clone() for key, value in model.named_buffers()}
        return torch.func.functional_call(model, (parameters, buffers), (images,))

    u = torch.randn(4, 3, dtype=torch.float64)
    detached = {key: value.detach() for key, value in parameters.items()}
    _, tangent = torch.func.jvp(logits, (detached,), (v,))
    gradients = torch.autograd.grad((u * logits(parameters)).sum(), list(parameters.values()))
    reverse = sum(
        ((g * v[key]).sum() for key, g in zip(parameters, gradients, strict=True)),
        start=torch.zeros((), dtype=torch.float64),
    )
    torch.testing.assert_close((u * tangent).sum(), reverse, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "sentence"),
    [
        (
            "wnr-28-10",
            (3, 32, 32),
            10,
            "Unknown model 'wnr-28-10'. Did you mean 'wrn-28-10'? Choose one of: auto,",
        ),
        ("wrn-28", (3, 32, 32), 10, "wrn-DEPTH-WIDTH (such as wrn-28-10), resnet-DEPTH (such as resnet-29), vgg-"),
        ("densnet121", (3, 32, 32), 10, "timm has densenet121, "),
        ("timm:resnet18.nobody", (3, 32, 32), 10, "Unknown model 'timm:resnet18.nobody'. timm has "),
        ("smal", (20,), 10, "Unknown model 'smal'. Did you mean 'small'?"),
        (
            "small",
            (20,),
            10,
            "Model 'small' needs images, but the data are vectors of 20 features: choose 'mlp'",
        ),
        ("wrn-28-10", (20,), 10, "Model 'wrn-28-10' needs images"),
        ("wrn-27-10", (3, 32, 32), 10, "cannot be 27 deep: the depth is 6n+4. Use 28,"),
        ("wrn-4-10", (3, 32, 32), 10, "cannot be 4 deep: the depth is 6n+4. Use 10,"),
        ("wrn-28-0", (3, 32, 32), 10, "cannot be 0 wide: use a width of 1 or more"),
        ("resnet-28", (3, 32, 32), 10, "cannot be 28 deep: the depth is 9n+2. Use 29,"),
        ("resnet-2", (3, 32, 32), 10, "cannot be 2 deep: the depth is 9n+2. Use 11,"),
        (
            "resnet-34",
            (3, 32, 32),
            10,
            "Use 38, or another such as 11, 20 or 29. timm's network for ImageNet is called",
        ),
        ("vgg-12", (3, 32, 32), 10, "A VGG cannot be 12 deep: use 11, 13, 16 or 19."),
        ("densenet-101", (3, 32, 32), 10, "cannot be 101 deep: the depth is 6n+4. Use 100,"),
        ("densenet-4", (3, 32, 32), 10, "cannot be 4 deep: the depth is 6n+4. Use 10,"),
        ("resnet-50", (20,), 10, "Model 'resnet-50' needs images"),
        ("timm:resnet18", (20,), 10, "Model 'timm:resnet18' needs images"),
        ("auto", (28, 28), 10, "examples of shape (28, 28): give images as (channels, height, width)"),
        ("auto", (0,), 10, "examples of shape (0,)"),
        ("auto", (20,), 1, "A model needs at least 2 classes to tell apart, and the labels have 1"),
    ],
)
def test_errors_say_the_remedy(name: str, shape: tuple[int, ...], classes: int, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        build_model(name, shape, classes)


def test_frozen_parameters_are_not_counted() -> None:
    """Linear(3, 2) has 3·2 weights and 2 biases; without its biases, 6 are left."""
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    assert parameter_count(layer) == 6
