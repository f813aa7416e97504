"""Finds functions, classes and the like with tree-sitter. One table of node types serves all languages: their grammars
agree on most names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from tree_sitter import Language, Node, Parser

# By file ending: the package with the grammar, and its function.
GRAMMARS = {
    ending: (package, function)
    for endings, package, function in (
        (".py .pyi .pyw", "python", "language"),
        (".js .mjs .cjs .jsx", "javascript", "language"),
        (".ts .mts .cts", "typescript", "language_typescript"),
        (".tsx", "typescript", "language_tsx"),
        (".go", "go", "language"),
        (".rs", "rust", "language"),
        (".java", "java", "language"),
        (".c", "c", "language"),
        (".h .cc .cpp .cxx .hh .hpp .hxx", "cpp", "language"),
        (".sh .bash", "bash", "language"),
        (".sql", "sql", "language"),
    )
    for ending in endings.split()
}
_LEAVES = frozenset(
    (
        "function_definition function_declaration generator_function_declaration method_definition method_declaration "
        "constructor_declaration function_item macro_definition type_alias_declaration type_spec type_definition "
        "create_function create_procedure create_table create_view create_materialized_view create_type create_trigger"
    ).split()
)
_CONTAINERS = frozenset(
    (
        "class_definition class_declaration abstract_class_declaration interface_declaration enum_declaration "
        "record_declaration annotation_type_declaration struct_item enum_item trait_item impl_item mod_item "
        "namespace_definition internal_module struct_specifier class_specifier union_specifier enum_specifier"
    ).split()
)
# Types of C and C++ are named where they are used, too.
_NEEDS_BODY = frozenset("struct_specifier class_specifier union_specifier enum_specifier".split())
_FUNCTION_VALUES = frozenset("arrow_function function_expression generator_function class".split())
_WRAPPERS = frozenset(
    (
        "decorated_definition export_statement template_declaration statement expression_statement ambient_declaration"
    ).split()
)
_WRAPPERS_ON_THE_LINE = frozenset("lexical_declaration variable_declaration type_declaration declaration".split())
_MAX_DEPTH = 8
_MAX_NAME_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class CodeDefinition:
    """A function, class or the like: its path (`Class.method`), its first and last line from 0, the line of its name,
    and how deep it is."""

    path: str
    first: int
    last: int
    line: int
    depth: int


def find_definitions(text: str, ending: str) -> list[CodeDefinition]:
    """Returns the definitions of a source file in order, each before the definitions inside it. Raises ImportError
    without the grammar of the language."""
    package, function = GRAMMARS[ending]
    language = Language(getattr(import_module(f"tree_sitter_{package}"), function)())
    tree = Parser(language).parse(text.encode("utf-8", "replace"))
    return list(_walk(tree.root_node))


def _walk(root: Node) -> Iterator[CodeDefinition]:
    stack: list[tuple[Node, str, int]] = [(root, "", 0)]
    while stack:
        node, path, depth = stack.pop()
        named = _find_name(node)
        if named is not None and (name := _find_receiver(node) + _read(named)):
            path = f"{path}.{name}" if path else name
            outer = _unwrap(node)
            yield CodeDefinition(path, _find_first_line(outer), _last_line(outer), named.start_point.row, depth)
            depth += 1
            if node.type not in _CONTAINERS or depth >= _MAX_DEPTH:
                continue
        stack.extend((child, path, depth) for child in reversed(node.named_children))


def _find_name(node: Node) -> Node | None:
    """Returns the name of what a node defines; None if it defines nothing."""
    kind = node.type
    if kind in _NEEDS_BODY and node.child_by_field_name("body") is None:
        return None
    if kind in {"variable_declarator", "assignment_expression"}:
        value = node.child_by_field_name("value" if kind == "variable_declarator" else "right")
        if value is None or value.type not in _FUNCTION_VALUES:
            return None
        return node.child_by_field_name("name" if kind == "variable_declarator" else "left")
    if kind not in _LEAVES and kind not in _CONTAINERS:
        return None
    named = node.child_by_field_name("name") or (node.child_by_field_name("type") if kind == "impl_item" else None)
    if named is None and kind.startswith("create_"):
        named = next((child for child in node.named_children if child.type == "object_reference"), None)
    return named or _find_declared(node)


def _find_declared(node: Node) -> Node | None:
    """Returns the name that a declaration of C declares, inside its pointers and parameters."""
    declared = node.child_by_field_name("declarator")
    while declared is not None and (inner := declared.child_by_field_name("declarator")) is not None:
        declared = inner
    return declared


def _find_receiver(method: Node) -> str:
    """Returns the type of a Go method's receiver with a dot; empty for what has none."""
    receiver = method.child_by_field_name("receiver")
    stack = [receiver] if receiver is not None else []
    while stack:
        node = stack.pop()
        if node.type == "type_identifier":
            return f"{_read(node)}."
        stack.extend(reversed(node.named_children))
    return ""


def _unwrap(node: Node) -> Node:
    """Returns the statement that a definition is part of: with its decorators, `export` or `const`."""
    while (parent := node.parent) is not None and (
        parent.type in _WRAPPERS
        or (parent.type in _WRAPPERS_ON_THE_LINE and parent.start_point.row == node.start_point.row)
    ):
        node = parent
    return node


def _find_first_line(node: Node) -> int:
    """Returns the first line of a definition with the comments and attributes right above it."""
    first: int = node.start_point.row
    before = node.prev_sibling
    while (
        before is not None
        and ("comment" in before.type or before.type == "attribute_item")
        and _last_line(before) == first - 1
    ):
        first = before.start_point.row
        before = before.prev_sibling
    return first


def _last_line(node: Node) -> int:
    last: int = node.end_point.row
    ends_before_line = bool(node.end_point.column == 0 and last > node.start_point.row)
    return last - ends_before_line


def _read(node: Node | None) -> str:
    text = (node.text or b"").decode("utf-8", "replace") if node is not None else ""
    return "".join(text.split()).replace("::", ".")[:_MAX_NAME_CHARACTERS]
