"""The types of a workflow's arguments, which its program finds in the variable `params`."""

from __future__ import annotations

import re

from toolscript.codegen.clients import group_by_server
from toolscript.codegen.names import UniqueNames
from toolscript.codegen.python import BUILTINS, TYPING, PythonTypes
from toolscript.codegen.typescript import write_types
from toolscript.domain.catalog import Item, Schema
from toolscript.domain.programs import Language

PARAMETERS = "params"


def declare_parameters(language: Language, schema: Schema) -> str:
    """The declaration of `params` in the program's language, with the types that it needs."""
    names = UniqueNames([*TYPING, *BUILTINS, "FoundTool", "Tools"])
    # The names of its types are those of no other tool, so that the program can call all of them.
    (server,) = group_by_server([Item("this", "workflow", input_schema=schema)], names)
    (tool,) = server.tools
    if language is Language.TYPESCRIPT:
        types = "\n".join(write_types(tool))
        text = re.sub(r"^export (?=interface|type)", "", types, flags=re.MULTILINE)
        return f"{text}\ndeclare const {PARAMETERS}: {tool.params_type};\n"
    python = PythonTypes(names)
    python.declare(tool.params)
    text = "\n\n".join([*python.format_types(), f"{PARAMETERS}: {tool.params_type}\n"])
    used = ", ".join(name for name in TYPING if re.search(rf"\b{name}\b", text))
    return f"from typing import {used}\n\n{text}" if used else text
