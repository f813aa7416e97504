"""Replaces the variables in strings of a configuration: those of the environment, and those of other clients."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Strings: `re` compiles each at its first use, not when the command line starts.
VARIABLE = (
    r"\$\{(?P<env>env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{input:(?P<input>[^}\x00-\x1f]+)\}"
    r"|\$\{(?P<other>config|command):[^}]*\}"
)


def resolve_variables(text: str, places: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its variables replaced, and what is wrong with it. `places` win over variables of the environment.
    Values are not searched for further variables."""
    problems: list[str] = []

    def resolve(match: re.Match[str]) -> str:
        name, default, requested = match["name"], match["default"], match["input"]
        if match["other"]:
            problems.append(f"cannot resolve ${{{match['other']}:…}}: only the client that defines it can")
            return ""
        if requested:
            name = name_input_variable(requested)
            if name not in environment:
                problems.append(f"needs the input {requested}: set the environment variable {name}")
            return environment.get(name, "")
        if name in places and not match["env"]:
            return places[name]
        if default is None and name not in environment:
            problems.append(f"variable {name} is not set: set it, or write ${{{name}:-default}}")
        elif default is not None and "${" in default:
            problems.append(f"variables are not allowed in the default of {name}")
        return environment.get(name) or default or ""

    resolved = re.sub(VARIABLE, resolve, text)
    if "\0" in resolved:
        problems.append("must not contain a NUL character")
    return resolved, problems


def name_input_variable(requested: str) -> str:
    """The environment variable for an input that VS Code would ask for."""
    return re.sub(r"[^A-Z0-9]", "_", requested.upper())
