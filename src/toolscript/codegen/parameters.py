"""The types of a workflow's arguments. Its program finds them in the variable `params`."""

from __future__ import annotations

from toolscript.codegen.clients import group_by_server
from toolscript.codegen.names import UniqueNames
from toolscript.codegen.python import BUILTINS, TYPING, PythonTypes, add_typing
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
        text = "\n".join(write_types(tool, exported=False))
        return f"{text}\ndeclare const {PARAMETERS}: {tool.params_type};\n"
    python = PythonTypes(names)
    python.declare(tool.params)
    return add_typing("\n\n".join([*python.format_types(), f"{PARAMETERS}: {tool.params_type}\n"]))
