"""Every image is decoded once before training: what cannot be read is known at once, not in the third epoch."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from karat.data.images import ImageFiles

_WORTH_A_BAR = 500


def check_images(images: ImageFiles) -> tuple[dict[int, str], list[bytes]]:
    """Decode all images; return why some cannot be read, by row, and a hash of each one's bytes (empty: unreadable)."""
    bad: dict[int, str] = {}
    digests: list[bytes] = []
    console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    hidden = not console.is_terminal or console.is_dumb_terminal or len(images) < _WORTH_A_BAR
    with RichProgress(
        *columns, console=console, transient=True, disable=hidden, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task("checking images", total=len(images))
        for row, (reason, digest) in enumerate(images.check()):
            if reason is not None:
                bad[row] = reason
            digests.append(digest)
            bar.advance(task)
    return bad, digests
