"""A command-line parser whose errors are one sentence with the remedy."""

import argparse
import re
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from karat.errors import UserError, suggestion
from karat.settings.renamed import new_name


class Parser(ArgumentParser):
    """A parser whose errors are one sentence with the remedy."""

    def error(self, message: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise the parser's message as one sentence, with the nearest legal name for a mistyped one."""
        message = " ".join(message.split())
        names = self.option_names()
        settings = [option.removeprefix("--") for option in names]
        help_command = f"See: {self.prog.replace(' [options]', '')} --help"
        if unknown := re.match(r"unrecognized arguments: ([^\s=]+)", message):
            self._say_new_name(unknown[1].removeprefix("--"), settings)
            raise UserError(f"There is no option '{unknown[1]}'.{suggestion(unknown[1], names)} {help_command}")
        if unknown := re.search(r"does not accept option '([^']+)'|[Kk]ey '([^']+)' is not expected", message):
            key = unknown[1] or unknown[2]
            self._say_new_name(key, settings)
            raise UserError(f"There is no setting '{key}'.{suggestion(key, settings)} {help_command}")
        if unknown := re.match(r"argument COMMAND: invalid choice: '([^']+)' \(choose from (.*)\)", message):
            commands = re.findall(r"[a-z]+", unknown[2])
            near = suggestion(unknown[1], commands)
            raise UserError(f"There is no command '{unknown[1]}'.{near} Choose one of: {', '.join(commands)}.")
        if message.startswith("Unexpected config"):
            raise UserError(f"The config file holds no settings: write `name: value` lines. {help_command}")
        message = re.sub(r'^(?:.* - )?Parser key "([^"]+)": ', r"\1: ", message)
        if section := re.match(r"(\S+): Unable to load config", message):
            raise UserError(f"{section[1]} is a section: give it `name: value` lines of its own. {help_command}")
        if union := re.match(r"(\S+): Does not .* Subtypes: \[(.*)\] Errors: .* Given value: (.*)", message):
            expected = (
                union[2].replace("<class '", "").replace("'>", "").replace("NoneType", "null").replace(", ", " or ")
            )
            raise UserError(f"{union[1]}: expected {expected}. Got: {union[3]}. {help_command}")
        message = re.sub(r"Expected a typing\.Literal\[(.*?)\]\.", r"choose one of \1.", message)
        message = re.sub(r"Expected a <class '(\w+)'>", r"expected \1", message)
        message = message.replace("Got value:", "Got:").rstrip(".")
        raise UserError(f"{message}. {help_command}")

    def _say_new_name(self, name: str, legal: list[str]) -> None:
        sentence = new_name(name, legal)
        if sentence is not None:
            raise UserError(sentence)

    def option_names(self) -> list[str]:
        """Return the options of this parser and of its commands."""
        names = [option for action in self._actions for option in action.option_strings]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action._name_parser_map.values():
                    names += [option for action in parser._actions for option in action.option_strings]
        return names
