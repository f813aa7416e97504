"""Makes tools of the operations of a document, and for each the plan of its request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from toolscript.adapters.openapi.document import ApiDocument, BadDocument, describe_kind, point_to
from toolscript.adapters.openapi.schemas import SchemaWriter, write_object

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
SAFE_METHODS = ("get", "head", "options", "trace")
MAX_NAME = 64
MAX_TITLE, MAX_DESCRIPTION = 100, 20_000
MAX_PROBLEMS = 100
# Of one tool's schemas, in characters. All tools of a document have a share of the total.
MAX_INPUT, MAX_OUTPUT, MIN_SCHEMA, MAX_TOTAL = 32_000, 16_000, 1_000, 48_000_000
MAX_OPERATIONS = 10_000
# Of all operations: the gateway reads them at once.
MAX_CHARACTERS = 128 * 2**20
PLACES = ("path", "query", "header", "cookie")
# HTTP itself, or the entry of the configuration, decides about them.
_OWN_HEADERS = frozenset(
    "accept authorization connection content-length content-type cookie host transfer-encoding upgrade".split()
)
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_COLLECTIONS = {"ssv": "spaceDelimited", "tsv": "spaceDelimited", "pipes": "pipeDelimited"}


def list_operations(document: ApiDocument, given: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Each operation as `{"tool": …, "plan": …}`: a tool as MCP lists it, and how to call it. Parameters in `given`
    (`header:x-key`, `query:key`) have a value in the configuration and are left out."""
    found = [
        (path, method, item, place)
        for path, entry in document.paths.items()
        if path.startswith("/") or isinstance(entry, dict)
        for place in [point_to("paths", path)]
        for item in [_read_path_item(document, entry, place)]
        for method in METHODS
        if method in item
    ]
    if len(found) > MAX_OPERATIONS:
        document.note("/paths", f"has more than {MAX_OPERATIONS} operations: the rest is left out")
    chosen = found[:MAX_OPERATIONS]
    share = max(MIN_SCHEMA, MAX_TOTAL // max(1, len(chosen)))
    names: set[str] = set()
    for path, method, item, place in chosen:
        reader = _OperationReader(document, path, method, f"{place}/{method}", share)
        try:
            made = reader.read(item, given)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            document.note(f"{place}/{method}", f"cannot be read ({type(error).__name__}): left out")
            continue
        if made:
            made["tool"]["name"] = _choose_name(made["id"], method, path, names)
            yield {"tool": made["tool"], "plan": made["plan"]}


def _read_path_item(document: ApiDocument, entry: Any, place: str) -> Mapping[str, Any]:
    item = document.follow(entry, place)
    if isinstance(item, Mapping):
        return item
    if item is not None:
        document.note(place, f"must be an object of operations by method, not {describe_kind(item)}")
    return {}


def _choose_name(stated: str, method: str, path: str, names: set[str]) -> str:
    """A name of letters, digits, `_`, `-` and `.`, that no other operation has."""
    words = _clean_name(path.partition("?")[0])
    candidates = [_clean_name(stated), _clean_name(f"{method}_{words}")]
    name = next((each for each in candidates if each and each not in names), candidates[1])
    number = 1
    while name in names:
        number += 1
        name = f"{candidates[1][: MAX_NAME - 6]}_{number}"
    names.add(name)
    return name


def _clean_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).replace("__", "_").strip("_.-")[:MAX_NAME].strip("_.-")


class _OperationReader:
    """Reads one operation."""

    def __init__(self, document: ApiDocument, path: str, method: str, place: str, share: int) -> None:
        self._document = document
        self._path = path
        self._method = method
        self._place = place
        self._max_input, self._max_output = min(share, MAX_INPUT), min(share // 2, MAX_OUTPUT)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._parameters: list[dict[str, Any]] = []

    def read(self, item: Mapping[str, Any], given: frozenset[str]) -> dict[str, Any] | None:
        """The tool and its plan; None, with a problem, for an operation that cannot be called."""
        operation = self._document.follow(item[self._method], self._place)
        path, _, query = self._path.partition("#")[0].partition("?")
        segments = re.sub(r"\{[^{}]*\}", "x", path).split("/")
        problem = ""
        if not isinstance(operation, Mapping):
            problem = f"must be an object, not {describe_kind(operation)}"
        elif not path.startswith("/") or not {".", ".."}.isdisjoint(segments) or "\\" in path:
            problem = "the path must begin with / and have no segments . and .."
        elif self._is_elsewhere(operation.get("servers", item.get("servers"))):
            problem = "its own `servers` name another address than the document's, and calls go nowhere else"
        if problem:
            self._document.note(self._place, f"{problem}: left out")
            return None
        in_body = self._read_parameters([*_list(item.get("parameters")), *_list(operation.get("parameters"))], given)
        body = self._swagger_body(in_body, operation) if in_body else None
        if not self._document.is_swagger:
            body = self._read_request_body(operation.get("requestBody"))
        for name in re.findall(r"\{([^{}]+)\}", path):
            if all(each["in"] != "path" or each["name"] != name for each in self._parameters):
                self._add_parameter({"name": name, "in": "path", "schema": {"type": "string"}})
        plan_body = self._plan_body(body) if body else None
        output, wraps = self._read_output(operation)
        label = f"{self._method.upper()} {self._path}"
        plan: dict[str, Any] = {"method": self._method.upper(), "path": path}
        plan |= {"query": parse_qsl(query, keep_blank_values=True)}
        plan |= {"label": label, "parameters": self._parameters, "body": plan_body, "wraps": wraps}
        schema = write_object(
            self._document, self._properties, self._required, is_input=True, max_characters=self._max_input
        )
        tool = {
            **self._describe(operation, label),
            "inputSchema": schema,
            **({"outputSchema": output} if output else {}),
        }
        return {"id": _text(operation.get("operationId")), "tool": tool, "plan": plan}

    def _is_elsewhere(self, servers: Any) -> bool:
        own, known = _list_places(servers), _list_places(self._document.root.get("servers")) or {("", "")}
        return bool(own) and all(host not in {"", each} or path != at for host, path in own for each, at in known)

    def _describe(self, operation: Mapping[str, Any], label: str) -> dict[str, Any]:
        summary, text = _text(operation.get("summary")).strip(), _text(operation.get("description")).strip()
        parts = [summary] if summary and not text.startswith(summary.rstrip(".")) else []
        parts += [text] if text else []
        if operation.get("deprecated") is True:
            parts.append("Deprecated.")
        tags = [tag for tag in _list(operation.get("tags")) if isinstance(tag, str)]
        hints: dict[str, Any] = {"readOnlyHint": self._method in SAFE_METHODS}
        if self._method == "delete":
            hints["destructiveHint"] = True
        if self._method in {*SAFE_METHODS, "put", "delete"}:
            hints["idempotentHint"] = True
        about = {**hints, "openWorldHint": True, "operation": label, **({"tags": tags} if tags else {})}
        description = "\n\n".join(parts) or label
        if len(description) > MAX_DESCRIPTION:
            problem = f"the description has {len(description)} characters: the first {MAX_DESCRIPTION} are kept"
            self._document.note(self._place, problem)
        return {"name": "", "description": description[:MAX_DESCRIPTION], "annotations": about}

    def _read_parameters(self, stated: list[Any], given: frozenset[str]) -> list[dict[str, Any]]:
        """Adds the parameters of the request; returns those that Swagger 2 has for the body."""
        chosen: dict[tuple[str, str], dict[str, Any]] = {}
        for number, each in enumerate(stated):
            parameter = self._document.follow(each, f"{self._place}/parameters/{number}")
            if isinstance(parameter, dict) and isinstance(parameter.get("name"), str):
                chosen[parameter["name"], _text(parameter.get("in"))] = parameter  # an operation's own come last
            elif parameter is not None:
                self._document.note(f"{self._place}/parameters/{number}", "must be an object with a name: left out")
        body = []
        for (name, place), parameter in chosen.items():
            if place in {"body", "formData"}:
                body.append(parameter)
            elif place not in PLACES:
                self._document.note(self._place, f"parameter {name[:40]!r}: `in` must be {', '.join(PLACES)}: left out")
            elif (place == "header" and name.lower() in _OWN_HEADERS) or f"{place}:{name.lower()}" in given:
                continue
            else:
                self._add_parameter(parameter)
        return body

    def _add_parameter(self, parameter: Mapping[str, Any]) -> None:
        name, place = parameter["name"], parameter["in"]
        content = parameter.get("content")
        media = next(iter(content.values()), None) if isinstance(content, Mapping) else None
        schema = media.get("schema") if isinstance(media, Mapping) else parameter.get("schema", parameter)
        if schema is parameter:  # Swagger 2: the schema's words are among the parameter's own
            schema = {key: value for key, value in parameter.items() if key != "required"}
        elif isinstance(schema, Mapping) and _text(parameter.get("description")):
            schema = {**schema, "description": parameter["description"]}
        style = _text(parameter.get("style")) or ("form" if place in {"query", "cookie"} else "simple")
        collection = parameter.get("collectionFormat", "csv") if self._document.is_swagger else None
        explode = parameter.get("explode", style == "form") if collection is None else collection == "multi"
        taken = self._properties
        argument = _clean_name(name) or "value"
        argument = argument if argument not in taken else f"{argument}_{place}"
        while argument in taken:
            argument += "_"
        plan = {"argument": argument, "name": name, "in": place, "style": _COLLECTIONS.get(str(collection), style)}
        self._parameters.append({**plan, "explode": explode is True, "json": isinstance(media, Mapping)})
        self._properties[argument] = schema
        if parameter.get("required") is True or place == "path":
            self._required.append(argument)

    def _swagger_body(self, parameters: list[dict[str, Any]], operation: Mapping[str, Any]) -> dict[str, Any]:
        """The `requestBody` of OpenAPI 3 for parameters of Swagger 2."""
        stated = [m for m in _list(operation.get("consumes", self._document.root.get("consumes"))) if _text(m)]
        whole = next((each for each in parameters if each.get("in") == "body"), None)
        if whole is not None:
            media = stated or ["application/json"]
            content = {each: {"schema": whole.get("schema", {})} for each in media}
            return {"required": whole.get("required"), "description": whole.get("description"), "content": content}
        has_file = any(each.get("type") == "file" for each in parameters)
        properties = {p["name"]: {key: value for key, value in p.items() if key != "required"} for p in parameters}
        required = [p["name"] for p in parameters if p.get("required") is True]
        schema = {"type": "object", "properties": properties, "required": required}
        return {"required": bool(required), "content": {_MULTIPART if has_file else _FORM: {"schema": schema}}}

    def _read_request_body(self, stated: Any) -> dict[str, Any] | None:
        body = self._document.follow(stated, f"{self._place}/requestBody")
        return body if isinstance(body, dict) and isinstance(body.get("content"), Mapping) and body["content"] else None

    def _plan_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        content: Mapping[str, Any] = body["content"]
        media = min(content, key=_rank_media)
        entry = content[media] if isinstance(content[media], Mapping) else {}
        schema, kind = entry.get("schema", {}), _kinds_of(media)
        plan = {"media": "application/json" if "*" in media else media, "kind": kind}
        target = self._document.follow(schema, f"{self._place}/requestBody")
        if isinstance(target, Mapping) and "allOf" in target:
            writer = SchemaWriter(self._document, is_input=True, max_characters=self._max_input)
            target = writer.merge(target) or target
        fields = self._flatten(target) if kind in {"json", "form", "multipart"} else None
        if kind == "binary":
            schema = {"type": "string", "format": "binary"}
        if fields is None:
            argument = "body" if "body" not in self._properties else "request_body"
            about = {"description": body["description"]} if _text(body.get("description")) else {}
            self._properties[argument] = {**schema, **about} if isinstance(schema, Mapping) else about
            if body.get("required") is True:
                self._required.append(argument)
            return {**plan, "argument": argument, **self._plan_parts(target, entry)}
        if body.get("required") is True:
            stated = _list(target.get("required"))
            self._required += [argument for argument, name in fields.items() if name in stated]
        self._properties |= {argument: target["properties"][name] for argument, name in fields.items()}
        return {**plan, "fields": fields, "required": body.get("required") is True, **self._plan_parts(target, entry)}

    def _flatten(self, target: Any) -> dict[str, str] | None:
        """The arguments for the properties of an object, by their names there; None where it is more than that."""
        properties = target.get("properties") if isinstance(target, Mapping) else None
        if not isinstance(properties, Mapping) or not properties or not all(isinstance(n, str) for n in properties):
            return None
        if target.keys() & {"oneOf", "anyOf", "allOf", "not", "if", "nullable", "patternProperties"}:
            return None
        if target.get("additionalProperties", False) is not False:
            return None
        shown = {
            name
            for name, each in properties.items()
            if not isinstance(found := self._document.follow(each, self._place), Mapping) or not found.get("readOnly")
        }
        fields = {_clean_name(name): name for name in properties if name in shown}
        is_plain = len(fields) == len(shown) and "" not in fields and not fields.keys() & self._properties.keys()
        return fields if is_plain and fields else None

    def _plan_parts(self, target: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of a form that are files, and how others are written."""
        properties = target.get("properties") if isinstance(target, Mapping) else None
        files = [name for name, each in (properties or {}).items() if self._is_file(each)]
        encoding = entry.get("encoding")
        stated = {
            name: {key: each[key] for key in ("style", "explode", "contentType") if key in each}
            for name, each in (encoding.items() if isinstance(encoding, Mapping) else ())
            if isinstance(each, Mapping)
        }
        return {"files": files, "encoding": stated}

    def _is_file(self, schema: Any) -> bool:
        found = self._document.follow(schema, self._place)
        if isinstance(found, Mapping) and found.get("type") == "array":
            return self._is_file(found.get("items"))
        return isinstance(found, Mapping) and (
            found.get("type") == "file" or found.get("format") == "binary" or "contentMediaType" in found
        )

    def _read_output(self, operation: Mapping[str, Any]) -> tuple[dict[str, Any] | None, bool]:
        """The schema of what a successful call returns, and whether that is wrapped as `result`, because it need not be
        an object. Without a schema if one kind of success is no JSON."""
        responses = operation.get("responses")
        stated = {str(code): each for code, each in responses.items()} if isinstance(responses, Mapping) else {}
        successes = [each for code, each in stated.items() if code.startswith("2")] or [stated.get("default")]
        schemas = []
        for each in successes:
            found = self._document.follow(each, f"{self._place}/responses")
            schema = self._find_json(found, operation) if isinstance(found, Mapping) else None
            if not schema:
                return None, False
            if schema not in schemas:
                schemas.append(schema)
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if wraps := self._wraps(schema):
            schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        target = self._document.follow(schema, self._place)
        if "allOf" in target:
            writer = SchemaWriter(self._document, is_input=False, max_characters=self._max_output)
            target = writer.merge(target) or target
        properties = target.get("properties")
        if not isinstance(properties, Mapping):
            return {"type": "object"}, wraps
        required = [name for name in properties if name in _list(target.get("required"))]
        hidden = {
            n for n in properties if isinstance(properties[n], Mapping) and properties[n].get("writeOnly") is True
        }
        shown = {name: each for name, each in properties.items() if name not in hidden}
        output = write_object(
            self._document,
            shown,
            [name for name in required if name not in hidden],
            is_input=False,
            max_characters=self._max_output,
        )
        return output, wraps

    def _find_json(self, response: Mapping[str, Any], operation: Mapping[str, Any]) -> Any:
        if self._document.is_swagger:
            kinds = _list(operation.get("produces", self._document.root.get("produces", ["application/json"])))
            return response.get("schema") if any(_kinds_of(str(kind)) == "json" for kind in kinds) else None
        content = response.get("content")
        media = (
            [each for kind, each in content.items() if _kinds_of(kind) == "json"] if isinstance(content, dict) else []
        )
        return media[0].get("schema") if media and isinstance(media[0], Mapping) else None

    def _wraps(self, schema: Any) -> bool:
        """Whether the schema may be of something else than an object."""
        target = self._document.follow(schema, self._place)
        if not isinstance(target, Mapping) or target.get("nullable") is True:
            return True
        if isinstance(target.get("allOf"), list):
            return all(map(self._wraps, target["allOf"])) and "properties" not in target
        return target.get("type") != "object" and "properties" not in target


def _list_places(servers: Any) -> set[tuple[str, str]]:
    """Host and path of each server."""
    urls = [urlsplit(_fill(each)) for each in _list(servers) if isinstance(each, Mapping)]
    return {(url.netloc.lower(), url.path.rstrip("/")) for url in urls}


def _kinds_of(media: str) -> str:
    plain = media.partition(";")[0].strip().lower()
    if plain in {"*/*", "application/*"} or plain.rpartition("/")[2] == "json" or plain.endswith("+json"):
        return "json"
    if plain == _FORM:
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    is_text = plain.startswith("text/") or plain.endswith(("/xml", "+xml", "yaml", "graphql", "ndjson"))
    return "text" if is_text else "binary"


def _rank_media(media: str) -> tuple[int, bool]:
    return ("json", "form", "multipart", "text", "binary").index(_kinds_of(media)), "*" in media


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def describe_document(document: ApiDocument) -> dict[str, Any]:
    """The title and the version of the API, and the addresses that the document names."""
    root, info = document.root, document.root.get("info")
    about = info if isinstance(info, Mapping) else {}
    if document.is_swagger:
        host = _text(root.get("host"))
        schemes = [each for each in _list(root.get("schemes")) if each in {"http", "https"}] or [""]
        lead = "https:" if "https" in schemes else f"{schemes[0]}:" if schemes[0] else ""
        servers = [f"{lead}//{host}{_text(root.get('basePath'))}" if host else _text(root.get("basePath")) or "/"]
    else:
        servers = [_fill(each) for each in _list(root.get("servers")) if isinstance(each, Mapping)] or ["/"]
    kind = "Swagger" if document.is_swagger else "OpenAPI"
    title = f"{str(about.get('title', ''))[:MAX_TITLE]} {str(about.get('version', ''))[:20]}".strip()
    return {"title": title, "version": f"{kind} {document.version[:10]}", "servers": servers[:10]}


def _fill(server: Mapping[str, Any]) -> str:
    variables = server.get("variables")
    known = variables if isinstance(variables, Mapping) else {}

    def find(match: re.Match[str]) -> str:
        variable = known.get(match[1])
        return str(variable.get("default", "")) if isinstance(variable, Mapping) else match[0]

    return re.sub(r"\{([^{}]+)\}", find, _text(server.get("url")))


def summarize_problems(document: ApiDocument) -> list[str]:
    """The problems, each once, and how many more there are."""
    problems = list(dict.fromkeys(document.problems))
    more = len(problems) - MAX_PROBLEMS
    return [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]


def write_lines(document: ApiDocument, given: frozenset[str]) -> Iterator[str]:
    """The document in lines of JSON: what it is, its operations, its problems. Raises BadDocument."""
    yield json.dumps({"about": describe_document(document)}, default=str)
    characters = 0
    for operation in list_operations(document, given):
        line = json.dumps(operation, default=str)
        characters += len(line)
        if characters > MAX_CHARACTERS:
            raise BadDocument(
                f"/paths: its operations have more than {MAX_CHARACTERS:,} characters: is there a reference that grows?"
            )
        yield line
    yield json.dumps({"problems": summarize_problems(document)})
