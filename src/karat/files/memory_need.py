"""Files that are small on the disk and huge in memory are refused before they are read."""

import contextlib
import ctypes
import gc
import gzip
import itertools
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from karat.errors import UserError

TEXT_FACTOR = 4  # a table of text in memory, at least: a cell is an object of 50 bytes and more
LONGEST_LINE = 16 * 2**20
_PIECE = 2**20
RUNS_BETWEEN_LOOKS = 5  # a look takes 0.2 s of the processor, as long as some small runs
_FINISHED = itertools.count(1)
_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3  # numbers of options in malloc.h


def free_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process may still take: of the machine, or of the container that it is in (Linux)."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        limit = int((root / "sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        return min(free, limit - int((root / "sys/fs/cgroup/memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one without a limit
        return free


def refuse_too_large(path: Path, need: int, available: int | None = None) -> None:
    """Refuse a file whose content needs more memory than there is.

    >>> refuse_too_large(Path("a.npz"), 3 * 2**30, available=2**30)
    Traceback (most recent call last):
    karat.errors.UserError: a.npz needs 3.0 GB of memory and 1.0 GB are free: give fewer rows, or use a larger machine.
    """
    free = free_memory() if available is None else available
    if free is not None and need > free:
        raise UserError(
            f"{path} needs {need / 2**30:.1f} GB of memory and {free / 2**30:.1f} GB are free: "
            "give fewer rows, or use a larger machine."
        )


def refuse_large_text(path: Path) -> None:
    """Refuse a table of text, packed or not, that cannot fit or has an endless line; it is looked at piece by piece."""
    free = free_memory()
    size = line = 0
    with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb") as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            line = len(piece) - piece.rfind(b"\n") - 1 if b"\n" in piece else line + len(piece)
            if line > LONGEST_LINE:
                raise UserError(f"{path} has a line of more than {LONGEST_LINE // 2**20} MB: is it a table of text?")
            if free is not None:
                refuse_too_large(path, TEXT_FACTOR * size, free)


def refuse_large_archive(path: Path) -> None:
    """Refuse an .npz file whose arrays cannot fit."""
    with zipfile.ZipFile(path) as archive:
        refuse_too_large(path, sum(member.file_size for member in archive.infolist()))


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep what is freed for what is asked for next, while training steps come and go (Linux).

    The C library gives blocks of more than 32 MB back to the system at once, and the system clears every page of the
    next one anew. What a layer of ResNet-29 returns for the 300 images of a joint batch is such a block: the forward
    pass took 2.6 times the processor time. Afterwards the limits are those to which the library raises them by itself.
    """
    _set_malloc(_MAP_THRESHOLD, 2**30)
    _set_malloc(_TRIM_THRESHOLD, -1)  # never
    try:
        yield
    finally:
        _set_malloc(_MAP_THRESHOLD, 32 * 2**20)
        _set_malloc(_TRIM_THRESHOLD, 64 * 2**20)


def _set_malloc(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than that of GNU
            ctypes.CDLL("libc.so.6").mallopt(option, value)


def give_back_memory() -> None:
    """Give back what finished runs left: a process that trains again and again would grow.

    On digits by 3 MB a run, measured over 46 runs of three methods: objects that refer to each other, which Python
    looks for ever more rarely, and what the allocator keeps in pieces (Linux).
    """
    if next(_FINISHED) % RUNS_BETWEEN_LOOKS == 0:
        gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than that of GNU
            ctypes.CDLL("libc.so.6").malloc_trim(0)
