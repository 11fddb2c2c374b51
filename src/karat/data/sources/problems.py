"""What is wrong with a user's data, collected, so that one look shows all of it."""

from collections.abc import Sequence

from karat.data.examples import Skipped
from karat.errors import UserError, terminal_safe

SHOWN = 20  # of a list on a terminal


class BadImages(UserError):
    """Some images cannot be read; `images` are all of them, the message shows some."""

    def __init__(self, message: str, images: Sequence[Skipped]) -> None:
        super().__init__(message)
        self.images = tuple(images)


class DamagedShard(Exception):
    """A file of many rows cannot be read at all; the text says why, without its name."""


class Problems:
    """The sentences about one source: errors, of which one stops everything, warnings, and notes on what was done."""

    def __init__(self, source: str, noun: str = "image", bad_images: Sequence[Skipped] = ()) -> None:
        self.source = source
        self.noun = noun  # what a bad one is called
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.bad_images = tuple(bad_images)

    def stop(self) -> None:
        """Raise a UserError with all errors, if there are any."""
        errors = self.errors + [_bad_images(self.bad_images, self.noun)] * bool(self.bad_images)
        if not errors:
            return
        if len(errors) == 1:
            message = f"{self.source}: {errors[0]}"
        else:
            numbered = "\n".join(f"  {number}. {error}" for number, error in enumerate(errors, start=1))
            message = f"{self.source} has {len(errors)} problems:\n{numbered}"
        raise BadImages(message, self.bad_images) if self.bad_images else UserError(message)


def counted(count: int, what: str, verbs: str = "") -> str:
    """Return a number with its noun, and its verb where both forms of it are given.

    >>> counted(1, "row", "has/have"), counted(1200, "image"), counted(2, "class", "is/are")
    ('1 row has', '1,200 images', '2 classes are')
    """
    if count != 1:
        what += "es" if what.endswith("s") else "s"
    verb = verbs.split("/")[count != 1] if verbs else ""
    return f"{count:,} {what} {verb}".rstrip()


def _bad_images(images: Sequence[Skipped], noun: str) -> str:
    remedy = "correct them" if noun == "text" else "put fresh copies in their place"
    lines = [f"       {terminal_safe(image.name)}: {image.reason}" for image in images[:SHOWN]]
    if len(images) > SHOWN:
        lines.append(f"       … and {len(images) - SHOWN:,} more")
    return "\n".join(
        [
            f"{counted(len(images), noun)} cannot be read: {remedy}, or go on without them by --on-bad-image skip.",
            *lines,
        ]
    )
