"""What training frees is kept for the next step, and given back after the run."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc, torch
from pathlib import Path
from karat.files.memory_need import give_back_memory, keeping_freed_memory

def size():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 2**10

def take_and_free():
    torch.ones(100 * 2**18).add(1)  # two blocks of 100 MB

sizes = [size()]
take_and_free()
sizes.append(size())
with keeping_freed_memory():
    take_and_free()
    sizes.append(size())
give_back_memory()
sizes.append(size())
take_and_free()
sizes.append(size())
print(*[after - sizes[0] for after in sizes])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of GNU's C library")
def test_blocks_are_kept_while_steps_are_taken_and_given_back_afterwards():
    """Megabytes of the process beyond those at first; 100 are a block."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    _, before, kept, given_back, after = map(float, run.stdout.split())
    assert before < 60
    assert kept > 150
    assert given_back < 60
    assert after < 60
