"""The machine that a run is on."""

import platform
import sys
from importlib.metadata import version
from typing import Any

import torch
import torch.distributed as dist

try:
    import resource
except ImportError:  # not a Unix: memory is not counted there
    resource = None  # type: ignore[assignment]


def environment(device: torch.device) -> dict[str, Any]:
    """Return what decides the last bits of a result: versions, device, threads, processes."""
    return {
        **versions(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "processes": dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1,
    }


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {name: version(name) for name in ("karat", "torch", "kornia", "numpy")}
    return {"python": platform.python_version(), **found}


def peak_memory(device: torch.device) -> dict[str, int]:
    """Return the most bytes that the process had in memory so far, and those on a GPU; nothing where nobody counts."""
    found = {}
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 2**10
        found["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if device.type == "cuda":
        found["peak_device_memory"] = torch.cuda.max_memory_allocated(device)
    return found
