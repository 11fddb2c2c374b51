"""Whether the files of a finished run are as it wrote them: flipped bits in a table of numbers are numbers, too."""

import logging
import zlib
from pathlib import Path

from karat.errors import DamagedFile, UserError
from karat.files.json_files import read_json, write_json

CHECKSUMS = "checksums.json"
_PIECE = 16 * 2**20

logger = logging.getLogger("karat")


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file, read piece by piece."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            value = zlib.crc32(piece, value)
    return value


def write_checksums(folder: Path, names: tuple[str, ...]) -> None:
    """Write the checksums of those of the named files that are in the folder."""
    write_json(folder / CHECKSUMS, {name: checksum(folder / name) for name in names if (folder / name).is_file()})


def changed_files(folder: Path, names: tuple[str, ...]) -> list[str]:
    """Return which of the named files are not as they were when their checksums were written; none without these.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("whole")
    >>> write_checksums(folder, ("a.txt",))
    >>> _ = (folder / "a.txt").write_text("hole")
    >>> changed_files(folder, ("a.txt", "b.txt"))
    ['a.txt']
    """
    path = folder / CHECKSUMS
    if not path.exists():
        return []
    try:
        stored = read_json(path)
    except UserError as error:  # the files may be whole: whoever reads them finds out what cannot be read
        logger.warning("%s", error)
        return []
    return [name for name in names if name in stored and _differs(folder / name, stored)]


def _differs(path: Path, stored: dict[str, int]) -> bool:
    return not path.is_file() or checksum(path) != stored[path.name]


def refuse_changed(folder: Path, *names: str) -> None:
    """Refuse files that nobody edits by hand and that are not as the run wrote them."""
    for name in changed_files(folder, names):
        raise DamagedFile(
            f"{folder / name} is damaged or missing (it is not as the run wrote it): restore it, or train again."
        )


def warn_of_changed(folder: Path, *names: str) -> None:
    """Say which files, that a person may have edited, are not as the run wrote them."""
    changed = changed_files(folder, names)
    if changed:
        logger.warning(
            "%s: not as the run wrote %s: %s. Whoever did not edit this should restore it.",
            folder,
            "them" if len(changed) > 1 else "it",
            ", ".join(changed),
        )
