"""Builds the request of a call: each argument goes where the document has its parameter, and nowhere else."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from toolscript.domain.errors import Invalid, InvalidArguments

_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}
_SAFE_HEADER = re.compile(r"[\t\x20-\x7e]*")
_BYTES = "application/octet-stream"
_PATH_SAFE = "/{}%:@!$&'()*+,;=~-._"


@dataclass(frozen=True, slots=True)
class BaseAddress:
    """The address that all requests of a server go to, or below."""

    origin: str
    path: str
    query: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str) -> BaseAddress:
        parts = urlsplit(url)
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        return cls(find_origin(url), quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~"), query)

    def contains(self, url: str) -> bool:
        """Whether a URL is at or below this address."""
        path = urlsplit(url).path
        is_plain = not {".", ".."} & {part.lower().replace("%2e", ".") for part in path.split("/")}
        is_below = path == self.path or path.startswith(f"{self.path}/")
        return find_origin(url) == self.origin and is_below and is_plain

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"


@dataclass(slots=True)
class ApiRequest:
    """What is sent."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    form: dict[str, list[str]] = field(default_factory=dict)
    files: list[tuple[str, Any]] = field(default_factory=list)


def find_origin(url: str) -> str:
    """Scheme, host and port of a URL. Raises ValueError."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{host}" + ("" if port == default else f":{port}")


def build_request(
    plan: Mapping[str, Any], arguments: Mapping[str, Any], base: BaseAddress, headers: Mapping[str, str]
) -> ApiRequest:
    """The request of a call. `headers` and the query of `base` are those of the configuration: no argument replaces
    one. Raises InvalidArguments."""
    query = [(name, value) for name, value in plan["query"]]
    own = {name.lower(): value for name, value in headers.items()}
    sent = {} if "accept" in own else {"Accept": "application/json, */*;q=0.5"}
    cookies: list[str] = [own["cookie"]] if "cookie" in own else []
    own_cookies = list_cookies(headers)
    path: dict[str, str] = {}
    for parameter in plan["parameters"]:
        argument, name = parameter["argument"], parameter["name"]
        value = arguments.get(argument)
        if value is None and parameter["in"] != "path":
            continue
        pairs = _serialise(parameter, value)
        match parameter["in"]:
            case "path":
                path[name] = _build_segment(argument, parameter["style"], pairs)
            case "query":
                query += pairs
            case "header" if name.lower() not in own:
                sent[name] = _require_line(argument, ",".join(text for _, text in pairs))
            case "cookie":
                named = [(quote(key, safe=""), quote(text, safe="")) for key, text in pairs]
                cookies += [f"{key}={text}" for key, text in named if key.lower() not in own_cookies]
    if cookies:
        sent["Cookie"] = "; ".join(cookies)
    parts = re.split(r"\{([^{}]+)\}", plan["path"])  # every second part is the name of a variable
    url = str(base) + "".join(path[part] if n % 2 else quote(part, safe=_PATH_SAFE) for n, part in enumerate(parts))
    if not base.contains(url):
        raise InvalidArguments("the arguments lead out of the address of the API")
    configured = {name.lower() for name, _ in base.query}
    given = [(name, value) for name, value in query if name.lower() not in configured]
    text = urlencode([*base.query, *given], quote_via=quote)
    request = ApiRequest(plan["method"], f"{url}?{text}" if text else url, sent)
    if plan["body"]:
        _add_body(request, plan["body"], arguments)
    return request


def list_cookies(headers: Mapping[str, str]) -> set[str]:
    """The names of configured cookies, in lower case."""
    header = next((value for name, value in headers.items() if name.lower() == "cookie"), "")
    return {each.partition("=")[0].strip().lower() for each in header.split(";")}


def _build_segment(argument: str, style: str, pairs: list[tuple[str, str]]) -> str:
    """The encoded value of a path's variable. It cannot be empty or leave its segment, also at a server that decodes
    slashes."""
    texts = [text for _, text in pairs]
    if not any(texts):
        raise InvalidArguments(f"{argument}: must not be empty", details={"field": argument})
    for text in texts:
        if {".", ".."} & set(re.split(r"[/\\]", text)) or re.search(r"[\x00-\x1f\x7f]", text):
            raise InvalidArguments(
                f"{argument}: must not have control characters, or . and .. as parts of a path",
                details={"field": argument},
            )
    encoded = [quote(text, safe="") for text in texts]
    match style:
        case "label":
            return "." + ".".join(encoded)
        case "matrix":
            return "".join(f";{quote(key, safe='')}={text}" for (key, _), text in zip(pairs, encoded, strict=True))
        case _:
            return ",".join(encoded)


def _require_line(argument: str, text: str) -> str:
    if not _SAFE_HEADER.fullmatch(text):
        raise InvalidArguments(
            f"{argument}: must be one line of printable ASCII characters, as it is sent as a header",
            details={"field": argument},
        )
    return text


def _serialise(parameter: Mapping[str, Any], value: Any) -> list[tuple[str, str]]:
    """A parameter's value as pairs of a name and a text."""
    name, style, explode = parameter["name"], parameter["style"], parameter["explode"]
    if parameter["json"]:
        return [(name, json.dumps(value, ensure_ascii=False))]
    if isinstance(value, Mapping):
        pairs = [(str(key), _to_text(each)) for key, each in value.items() if each is not None]
        if style == "deepObject":
            return list(_flatten_object(name, value))
        if explode:
            in_path = parameter["in"] in {"path", "header"} and style == "simple"
            return [(name, ",".join(f"{key}={each}" for key, each in pairs))] if in_path else pairs
        return [(name, ",".join(f"{key},{each}" for key, each in pairs))]
    if isinstance(value, list):
        texts = [_to_text(each) for each in value]
        if style == "deepObject":
            return [(f"{name}[]", text) for text in texts]
        if explode and parameter["in"] not in {"path", "header"}:
            return [(name, text) for text in texts]
        if parameter["in"] == "path":
            return [(name, text) for text in texts]
        return [(name, _SEPARATORS.get(style, ",").join(texts))]
    return [(name, _to_text(value))]


def _flatten_object(name: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flatten_object(f"{name}[{key}]", each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _flatten_object(f"{name}[{number}]", each)
    elif value is not None:
        yield name, _to_text(value)


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _add_body(request: ApiRequest, plan: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    if "fields" in plan:
        value: Any = {name: arguments[argument] for argument, name in plan["fields"].items() if argument in arguments}
        if not value and not plan["required"]:
            return
    elif plan["argument"] in arguments:
        value = arguments[plan["argument"]]
    else:
        return
    kind, media = plan["kind"], plan["media"]
    if kind in {"form", "multipart"} and not isinstance(value, Mapping):
        raise InvalidArguments(f"{plan.get('argument')}: must be an object", details={"field": plan.get("argument")})
    match kind:
        case "json":
            request.content = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        case "form":
            request.content = urlencode(_list_form(plan, value), quote_via=quote).encode()
        case "multipart":
            _add_parts(request, plan, value)
            return
        case "text":
            request.content = _to_text(value).encode("utf-8", "replace")
        case _:
            request.content = _decode_file(plan["argument"], value)
    request.headers["Content-Type"] = media


def _list_form(plan: Mapping[str, Any], value: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, each in value.items():
        stated = plan["encoding"].get(name, {})
        nested = {"style": "deepObject"} if isinstance(each, Mapping) else {}
        how = {"name": name, "in": "query", "style": "form", "explode": True, "json": False, **nested, **stated}
        pairs += _serialise(how, each) if each is not None else []
    return pairs


def _add_parts(request: ApiRequest, plan: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    for name, each in value.items():
        media = plan["encoding"].get(name, {}).get("contentType")
        values = each if isinstance(each, list) else [each]
        if name in plan["files"]:
            kind = media if isinstance(media, str) and "," not in media and "*" not in media else _BYTES
            _require_line(name, f"{name}{kind}")
            request.files += [(name, (name, _decode_file(name, one), kind)) for one in values]
        elif each is not None:
            request.form[name] = [_to_text(one) for one in values]
    if not request.files:  # without a file it would be sent as another kind of form
        request.files = [(name, (None, text.encode())) for name, texts in request.form.items() for text in texts]
        request.form = {}


def _decode_file(argument: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidArguments(
            f"{argument}: must be the bytes of a file in base64", details={"field": argument}
        ) from None


def choose_base(url: str, document_url: str, servers: list[str]) -> BaseAddress:
    """The address of the API: as configured (`url`), or what the document names within the origin of its own URL.
    Raises Invalid."""
    if url != document_url:
        return BaseAddress.parse(url)
    for server in servers:
        try:
            address = urljoin(document_url, server)
            if "{" not in address and find_origin(address) == find_origin(document_url):
                return BaseAddress.parse(address.partition("#")[0])
        except ValueError:
            continue
    named = next((each for each in servers if "://" in each), "https://api.example.com")
    raise Invalid(
        f"the document names {named[:200]} as the address of the API, which is not where the document itself is: if "
        f'calls may go there, add "url": {json.dumps(named[:200])} to the entry'
    )
