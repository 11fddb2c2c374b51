"""Whether a device computes in the type of numbers that is asked for: tried before the run, in another process."""

import subprocess
import sys
from functools import cache

import torch

from karat.errors import UserError

SHORT_TYPES = {"float32": None, "bfloat16": torch.bfloat16}
TRIAL_SECONDS = 120
# Some processors say that they have the instructions and do not: the process that uses them is ended by a signal.
_TRIAL = """
import torch
torch.set_num_threads(1)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3),
    torch.nn.Flatten(), torch.nn.Linear(32 * 144, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
).to(memory_format=torch.channels_last)
with torch.autocast("cpu", dtype=torch.bfloat16):
    logits = network(torch.randn(16, 3, 16, 16))
logits.float().square().mean().backward()
a = torch.randn(128, 128, dtype=torch.bfloat16)
print(bool((a @ a).isfinite().all()))
"""


def checked_precision(name: str, device: torch.device) -> torch.dtype | None:
    """Return the type that passes of networks are computed in, None for float32; refuse what the device cannot do."""
    precision = SHORT_TYPES[name]
    reason = None if precision is None else _why_not(device.type)
    if reason is not None:
        raise UserError(f"training.precision is {name}, and {reason}: write training.precision: float32.")
    return precision


@cache
def _why_not(device: str) -> str | None:
    """Return what speaks against bfloat16 on this kind of device, None where it computes."""
    if device == "cuda":
        computes = torch.cuda.is_bf16_supported(including_emulation=False)
        return None if computes else f"{torch.cuda.get_device_name()} does not compute in it"
    try:
        done = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a trial of it did not come to its end ({type(error).__name__})"
    if done.returncode < 0:
        return f"a trial of it on this processor was ended by signal {-done.returncode}"
    return None if done.stdout.strip() == "True" else "a trial of it on this processor failed"
