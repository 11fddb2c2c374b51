"""The command line: what was asked for, and how it ends."""

import contextlib
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from karat.errors import Stopped, Told, UserError, terminal_safe
from karat.settings.command_line import parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 for something that the user can mend."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)

    def command() -> int | None:
        options = parse(arguments)
        from karat.commands import COMMANDS  # and torch with it: help and mistyped options need none of it

        return COMMANDS[options.command](options[options.command])

    return ended(command)


def ended(command: Callable[[], int | None]) -> int:
    """Run a command; say in a sentence what is wrong and return the exit code."""
    logging.basicConfig(format="karat: %(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_made_safe)
    warnings.filterwarnings("ignore", module="PIL")  # what ails an image is said in words that name the image
    if isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # somebody put a pipe in the place of a file
            sys.stdout.reconfigure(errors="replace")  # a terminal or a file whose encoding lacks a character
    logging.getLogger("karat").setLevel(logging.INFO if _is_first_process() else logging.ERROR)
    try:
        _end_on_sigterm()
        return command() or 0
    except UserError as error:
        if _is_first_process() or error.is_of_this_process:
            print(f"karat: {_lines(error)}", file=sys.stderr)
        return 2
    except Told as told:
        return told.exit_code
    except BrokenPipeError:  # whoever read our output, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"karat: {_lines(error)}: check the path, its rights and the space on the disk.", file=sys.stderr)
        return 2
    except UnicodeEncodeError as error:
        print(f"karat: {_lines(repr(error.object))} has characters that no file can have in its name.", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        print(f"karat: the memory does not suffice ({_lines(error)}): {_LESS_MEMORY}.", file=sys.stderr)
        return 2
    except Stopped as stopped:
        if _is_first_process():
            print(f"\nkarat: {stopped}", file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt:
        print("\nkarat: stopped; the same command with --resume and --run FOLDER continues.", file=sys.stderr)
        return 130


_LESS_MEMORY = "use --data.limit N, a smaller --training.batch_size or a smaller --model"


def _is_about_memory(error: Exception) -> bool:
    """Return whether the system refused memory: numpy raises a MemoryError, torch says it in words."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("allocate memory", "out of memory", "not enough memory")
    )


def leave(exit_code: int) -> NoReturn:
    """End this process; one of several at once, without the destructors of torch's threads.

    They abort a process now and then that has done all its work ("terminate called without an active exception").
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


def _is_first_process() -> bool:
    """Return whether torchrun started this process as the first one, or nobody started several."""
    return os.environ.get("RANK", "0") == "0"


def _lines(text: object) -> str:
    """Return a message, which may quote a file that somebody sent, without what would steer the terminal."""
    return "\n".join(map(terminal_safe, str(text).split("\n")))


def _made_safe(record: logging.LogRecord) -> bool:
    record.msg, record.args = _lines(record.getMessage()), ()
    return True


def _end_on_sigterm() -> None:
    """Let SIGTERM end the process as Ctrl-C does: locks and half-written files are put away."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Stopped(number, "stopped by SIGTERM.")

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
