"""The tools of the MCP surface, and the instructions that agents read before their first call.

A tool is a model of its arguments. The model checks calls and gives the JSON schema; the model's docstring is the
tool's description. These texts alone must enable an agent to find, understand and call any tool behind the gateway.
They are short, because their tokens are part of every agent's context.
"""

from __future__ import annotations

import inspect
import json
import unicodedata
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from mcp.server.caching import CacheableMethod, CacheHint
from mcp_types import Tool, ToolAnnotations
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from toolscript.domain.access import Scope
from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import Language
from toolscript.domain.spelling import find_meant
from toolscript.services.documents.search import SearchType
from toolscript.services.knowledge.search import DEFAULT_HITS, MAX_HITS
from toolscript.services.results.large_results import MAX_PAGE
from toolscript.surfaces.json.knowledge import parse_words

# Sentences, each with the tools that it is about: a client reads those about tools that it sees.
INSTRUCTIONS = (
    (
        ("search_tools",),
        "Many MCP servers are behind this one. Do not guess tool names: call search_tools with what you want to do.",
    ),
    (
        ("search_tools", "call_tool"),
        "Then use call_tool with the id of the best result. If none is confident, call a close one only if it serves "
        "the request; otherwise tell the user that no connected tool does.",
    ),
    (("describe_tool",), "describe_tool returns the whole schema of a tool."),
    (("search_skills",), "search_skills finds areas of work to search in."),
    (("run_code",), "run_code runs a program that calls several tools."),
    (("read_result",), "read_result reads and searches results that were cut."),
    (("search_documents",), "search_documents searches the user's own documents."),
    (("search_knowledge",), "search_knowledge searches books and papers, to answer with sources."),
)
NO_KEY = "Your client has sent no key, so only search_knowledge works."
NO_KEY_NO_KNOWLEDGE = "Your client has sent no key, so it sees no tools."
ADD_KEY = (
    "To search and call tools, the user must add the header `Authorization: Bearer KEY` to this server in the client's "
    "configuration."
)

# What the description of search_tools may say of the servers behind it, beside its own text.
OVERVIEW_TOKENS = 150
MAX_RESULTS = 20
DEFAULT_RESULTS = 5
MAX_SKILL_IDS = 10
# What models write for an argument that it does not resemble.
SYNONYMS = dict.fromkeys(("args", "params", "parameters", "input"), "arguments")
# Of unknown arguments that an error names.
MAX_NAMES, MAX_NAME_CHARACTERS = 5, 50


def _check_not_blank(text: str, info: ValidationInfo) -> str:
    if not text.strip():
        raise InvalidArguments(f"{info.field_name}: must not be blank", details={"field": info.field_name})
    return text


def parse_json_text(value: Any) -> Any:
    """Parses a string as JSON: some models write lists, numbers and objects as strings. Other values, and strings that
    are not valid JSON, are returned as they are."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _check_one_line(text: str, info: ValidationInfo) -> str:
    if any(unicodedata.category(letter) == "Cc" for letter in text):
        raise InvalidArguments(
            f"{info.field_name}: must not contain a control character", details={"field": info.field_name}
        )
    return text


Text = Annotated[str, AfterValidator(_check_not_blank)]
Id = Annotated[Text, AfterValidator(_check_one_line)]
ToolId = Annotated[Id, Field(description="An id from search_tools: server__tool.")]
Limit = Annotated[int, Field(ge=1, le=MAX_RESULTS)]
MinRelevance = Annotated[float, Field(ge=0, le=1), WithJsonSchema({"type": "number"})] | SkipJsonSchema[None]
Words = Annotated[tuple[str, ...], WithJsonSchema({"type": "array", "items": {"type": "string"}})]
Filters = Annotated[Any, BeforeValidator(parse_json_text), WithJsonSchema({"type": "object"})]
# Enums are members in strict mode; agents send their values.
ItemTypeName = Annotated[ItemType, Field(strict=False)]
LanguageName = Annotated[Language, Field(strict=False)]
SearchTypeName = Annotated[SearchType, Field(strict=False)]


class ToolArguments(BaseModel):
    """The arguments of a call. Null is ignored where an argument is optional, and so are unknown arguments: some
    clients add them. An unknown argument that resembles a missing argument is refused, or the call would do something
    else."""

    model_config = ConfigDict(strict=True, frozen=True)

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Self:
        """Checks the arguments of a call. Raises InvalidArguments, naming the first wrong argument."""
        try:
            parsed = cls.model_validate(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0])
            schema = cls.input_schema()
            optional = "" if field in schema["required"] else ", or left out"
            allowed = _describe(schema["properties"][field]) + optional
            problem = f"{field}: must be {allowed}"
            if first["type"] == "missing":
                problem = f"{field} is missing: it must be {allowed}{_name_unknown(arguments, schema['properties'])}"
            raise InvalidArguments(problem, details={"field": field, "allowed": allowed}) from error
        _refuse_misspelt(arguments, cls.model_fields)
        return parsed

    @classmethod
    def input_schema(cls) -> dict[str, Any]:
        """The JSON schema of the arguments without titles, empty defaults and references: they would cost tokens."""
        schema = cls.model_json_schema()
        definitions = schema.get("$defs", {})
        properties = {name: _compact(each, definitions) for name, each in schema["properties"].items()}
        return {"type": "object", "properties": properties, "required": schema["required"]}


def _compact(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    referred = definitions.get(str(schema.get("$ref")).rpartition("/")[2], {})
    merged = {**referred, **schema}
    return {k: v for k, v in merged.items() if k not in {"title", "$ref"} and not (k == "default" and v in (None, []))}


def _refuse_misspelt(arguments: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raises InvalidArguments for an unknown argument that was probably meant to be one that is not given."""
    missing = [name for name in known if arguments.get(name) is None]
    for name in (str(each)[:MAX_NAME_CHARACTERS] for each in arguments if each not in known):
        synonym = SYNONYMS.get(name)
        if meant := synonym if synonym in missing else find_meant(name, missing):
            raise InvalidArguments(
                f"{name}: unknown argument, did you mean {meant}?", details={"field": name, "allowed": meant}
            )


def _name_unknown(arguments: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What to add to an error about a missing argument: one with another name was probably meant to be it."""
    unknown = [str(name)[:MAX_NAME_CHARACTERS] for name in arguments if name not in known][:MAX_NAMES]
    if not unknown:
        return ""
    meant = [near for near in (find_meant(name, known) for name in unknown) if near]
    question = f"; did you mean {' and '.join(meant)}?" if meant else ""
    return f"; unknown: {', '.join(map(repr, unknown))}{question}"


def _describe(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": values}:
            return f"one of {', '.join(values)}"
        case {"type": "integer", "minimum": minimum, "maximum": maximum}:
            return f"a whole number from {minimum} to {maximum}"
        case {"type": "array", "maxItems": count}:
            return f"a list of at most {count} strings"
        case _:
            return f"a {schema['type']}"


class SearchToolsArguments(ToolArguments):
    """Find the right tool for a task among all connected servers. Describe the task in plain words, such as 'read a
    text file'; a tool's name works too. Each result has the id to call, a confidence (0 to 1), the signature and a
    description. If none is confident, call a close one that serves the task, or say that no tool does. `query` alone is
    usually enough."""

    query: Text = Field(description="What the tool should do, or its name.")
    limit: Limit = Field(DEFAULT_RESULTS, description="Maximum results.")
    type: ItemTypeName | SkipJsonSchema[None] = Field(None, description="Only this type; all by default.")
    skill_ids: Annotated[list[Id], Field(max_length=MAX_SKILL_IDS)] | SkipJsonSchema[None] = Field(
        None, description="Only in these, from search_skills."
    )
    strategy: Literal["standard", "hierarchical", "direct", "hybrid"] | SkipJsonSchema[None] = Field(
        "standard",
        description="standard, direct: all tools. hierarchical: those of skills that fit. hybrid: both.",
    )

    # For programs: see CODE_ARGUMENTS.
    output: Literal["list", "types"] | SkipJsonSchema[None] = None
    language: LanguageName | SkipJsonSchema[None] = None

    @field_validator("skill_ids")
    @classmethod
    def _strip_ids(cls, skill_ids: list[str] | None) -> list[str] | None:
        return list(dict.fromkeys(skill_id.strip() for skill_id in skill_ids or ()))

    @model_validator(mode="after")
    def _check_strategy(self) -> Self:
        if self.skill_ids and self.strategy in {"direct", "hybrid"}:
            raise InvalidArguments(
                f"strategy: {self.strategy} searches outside skills, so it cannot be combined with skill_ids: leave "
                "one of them out",
                details={"field": "strategy"},
            )
        return self


# Claude Code hides the tools of servers behind a search of its own, except tools with this mark: a model rarely
# searches for a search.
ALWAYS_LOADED = {"anthropic/alwaysLoad": True}
# Arguments of search_tools that are ignored where no programs can be run. Only the first is listed where they can: it
# has the schema below.
CODE_ARGUMENTS = ("output", "language")
OUTPUT_SCHEMA = {"enum": ["list", "types"], "description": "types: declarations for run_code, instead of lines."}


class SearchSkillsArguments(ToolArguments):
    """Find the skills (areas of work) that fit a task: to see what is possible, or when search_tools finds tools of the
    wrong kind. Then call search_tools with the best ids as `skill_ids`."""

    query: Text = Field(description="The task, in plain words.")
    limit: Limit = Field(DEFAULT_RESULTS, description="Maximum skills.")


class DescribeToolArguments(ToolArguments):
    """Get the full description of a tool and the JSON schemas of its arguments and its result: only if the signature in
    a search result is not enough."""

    tool_id: ToolId


class CallToolArguments(ToolArguments):
    """Call a tool that search_tools has found. `arguments` has the parameters of its signature; those with a question
    mark are optional. A prompt returns its messages, a resource its contents."""

    tool_id: ToolId
    # The service checks them against the tool's own schema.
    arguments: Annotated[
        Any, BeforeValidator(parse_json_text), WithJsonSchema({"type": "object", "additionalProperties": True})
    ] = Field(None, description="The tool's arguments.")
    query: Text | SkipJsonSchema[None] = Field(None, description="The search that found it.")


class ReadSkillArguments(ToolArguments):
    """Read an agent skill from search_tools: its SKILL.md, or another file."""

    agent_skill_id: Id = Field(description="From search_tools.")
    path: Text | SkipJsonSchema[None] = Field(None, description="Such as references/style.md.")


class ReadResultArguments(ToolArguments):
    """Read more of a result that was cut; its last line has the handle. `query` searches in it, `path`
    takes a part of its JSON, `page` reads on."""

    handle: Id = Field(description="r_…")
    query: Text | SkipJsonSchema[None] = Field(None, description="What to find in it.")
    path: Text | SkipJsonSchema[None] = Field(None, description="items.0.name, or items.10:20")
    page: Annotated[int, Field(ge=1, le=MAX_PAGE)] | SkipJsonSchema[None] = Field(None, description="From 1.")

    @field_validator("query", "path", "page", mode="before")
    @classmethod
    def _drop_empty(cls, value: Any, info: ValidationInfo) -> Any:
        parsed = parse_json_text(value) if info.field_name == "page" else value
        return None if parsed in ("", 0) else parsed


class SearchDocumentsArguments(ToolArguments):
    """Find passages in the user's own documents. Each result has its id, relevance (0 to 1), title and passage."""

    query: Text = Field(description="What to search for.")
    limit: Limit = Field(DEFAULT_RESULTS, description="Maximum documents.")
    search_type: SearchTypeName | SkipJsonSchema[None] = Field(
        SearchType.HYBRID, description="By meaning, by words, or both."
    )
    filters: Filters = Field(None, description='Metadata: {"year": {"gte": 2024}}.')
    min_relevance: MinRelevance = Field(None, description="0 to 1.")


class SearchKnowledgeArguments(ToolArguments):
    """Search books and papers: passages (chunks), and decisions, patterns or warnings extracted from them. Cite what
    you use: title, authors, chapter, page."""

    query: Text = Field(description="The question.")
    limit: Annotated[int, Field(ge=1, le=MAX_HITS)] = Field(DEFAULT_HITS, description="Maximum results.")
    type: Words = Field((), description="chunk, extraction, or a type such as warning.")
    topics: Words = Field((), description="Any of these.")
    answer: bool = Field(False, description="Also answer, with citations.")
    context: Literal["passage", "section"] = Field("passage", description="section: with more text.")
    filters: Filters = Field(None, description='{"year": {"gte": 2024}}; also title, authors, date, kind.')
    min_relevance: MinRelevance = Field(None, description="0 to 1.")

    @field_validator("limit", "answer", mode="before")
    @classmethod
    def _parse_value(cls, value: Any, info: ValidationInfo) -> Any:
        defaults = {"limit": DEFAULT_HITS, "answer": False}
        return defaults[str(info.field_name)] if value is None else parse_json_text(value)

    @field_validator("type", "topics", mode="before")
    @classmethod
    def _parse_words(cls, value: Any, info: ValidationInfo) -> tuple[str, ...]:
        parsed = parse_json_text(value)
        return parse_words(str(info.field_name), parsed if isinstance(parsed, list) else value) or ()


class RunCodeArguments(ToolArguments):
    """Run a small program that calls several tools, instead of calling them one by one: only what it returns and prints
    comes back to you. `await tools.SERVER.NAME({...})` calls a tool; search_tools with output=types declares them. The
    program is checked first. Calls can run together: asyncio.gather, Promise.all. Its value is that of `return`, or in
    Python of the last line. Also there: `await search_tools(query)`, `await describe_tool(id)`, and with a session
    `save_result(name, value)`, `load_result(name)`; no files, no network, no packages."""

    code: Text = Field(description="The program.")
    language: LanguageName | SkipJsonSchema[None] = Field(None, description="Its language.")
    limits: Annotated[Any, BeforeValidator(parse_json_text), WithJsonSchema({"type": "object"})] = Field(
        None, description="seconds, cpu_seconds, memory_mb, calls, output_bytes."
    )
    session: Id | SkipJsonSchema[None] = Field(None, description="Keeps saved results for the next run.")


def build_instructions(names: Collection[str], *, is_anonymous: bool = False) -> str:
    """What a client reads before its first call that sees these tools, and has sent no key where one is required."""
    sentences = [text for about, text in INSTRUCTIONS if set(about).issubset(names)]
    if is_anonymous:
        sentences = [NO_KEY if "search_knowledge" in names else NO_KEY_NO_KNOWLEDGE, *sentences, ADD_KEY]
    return " ".join(sentences)


def _build_tool(name: str, title: str, arguments: type[ToolArguments], **hints: bool) -> Tool:
    description = inspect.cleandoc(arguments.__doc__ or "").replace("\n", " ")
    annotations = ToolAnnotations(title=title, **hints)
    meta = ALWAYS_LOADED if name in ("search_tools", "call_tool") else None
    schema = arguments.input_schema()
    if arguments is SearchToolsArguments:
        schema["properties"] = {k: v for k, v in schema["properties"].items() if k not in CODE_ARGUMENTS}
    return Tool(name=name, description=description, input_schema=schema, annotations=annotations, _meta=meta)


_SEARCH = {"read_only_hint": True, "open_world_hint": False}
TOOLS = [
    _build_tool("search_tools", "Search tools", SearchToolsArguments, **_SEARCH),
    _build_tool("search_skills", "Search skills", SearchSkillsArguments, **_SEARCH),
    _build_tool("describe_tool", "Describe a tool", DescribeToolArguments, **_SEARCH),
    _build_tool("call_tool", "Call a tool", CallToolArguments),
    _build_tool("read_result", "Read a large result", ReadResultArguments, **_SEARCH),
    _build_tool("search_documents", "Search documents", SearchDocumentsArguments, **_SEARCH),
    _build_tool("search_knowledge", "Search knowledge", SearchKnowledgeArguments, **_SEARCH),
]
# Listed only where there are agent skills.
READ_SKILL = _build_tool("read_skill", "Read an agent skill", ReadSkillArguments, **_SEARCH)
# Listed only where programs can be run.
RUN_CODE = _build_tool("run_code", "Run a program", RunCodeArguments)
# Not listed while there is nothing to find in them.
MAY_BE_EMPTY = ("search_skills", "search_documents", "search_knowledge")
# The scope that a key needs to see and call each tool.
TOOL_SCOPES = {
    "search_tools": Scope.SEARCH,
    "search_skills": Scope.SEARCH,
    "describe_tool": Scope.SEARCH,
    "call_tool": Scope.CALL,
    "run_code": Scope.CALL,
    "read_skill": Scope.CALL,
    "read_result": Scope.CALL,
    "search_documents": Scope.DOCUMENTS,
    "search_knowledge": Scope.KNOWLEDGE,
}
# How long clients may reuse answers. Access depends on the key, so they are never shared between keys. Lists change
# whenever a server's do, which clients are notified of; that of tools also says what can be searched.
CACHE_HINTS: Mapping[CacheableMethod, CacheHint] = {
    "server/discover": CacheHint(ttl_ms=300_000),
    "tools/list": CacheHint(ttl_ms=30_000),
    "prompts/list": CacheHint(ttl_ms=30_000),
    "resources/list": CacheHint(ttl_ms=30_000),
    "resources/templates/list": CacheHint(ttl_ms=30_000),
    "resources/read": CacheHint(ttl_ms=0),
}
