"""Every setting, its environment variable and its default. A flag beats the environment, which beats the default.

Plain dataclass fields rather than a settings library: the command line reads settings on every call, and the
library costs more time to import than a whole search takes. See docs/decisions/0006.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid

PREFIX = "TOOLSCRIPT_"
DEFAULT_MODEL = "Xenova/bge-small-en-v1.5"


@dataclass(frozen=True, slots=True)
class SettingRule:
    """How a value is read and what it may be."""

    help: str
    read: Callable[[str], Any] = str
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    secret: bool = False
    also: str = ""
    """A variable of another name that is read where the own one is not set."""


def _truth(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    try:
        return known[str(text).lower()]
    except KeyError:
        raise ValueError(text) from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _setting(default: Any, help: str, **rule: Any) -> Any:  # noqa: A002
    return field(default=default, metadata={"rule": SettingRule(help, **rule)}, repr=not rule.get("secret"))


@dataclass(frozen=True, slots=True)
class Settings:
    """What `open_app` needs to know. Each field is read from TOOLSCRIPT_ and its name in capitals."""

    data_dir: Path = _setting(  # noqa: RUF009
        Path("~/.toolscript"),
        "Folder for the embedded index, the embedded store and downloaded models.",
        read=Path,
    )
    index: str = _setting(
        "",
        "Where vectors live. Empty: Qdrant's engine in-process, under the data folder. `http(s)://HOST:6333`: a Qdrant "
        "server or cluster. `postgresql://USER@HOST/NAME`: PostgreSQL with pgvector, also the one of TOOLSCRIPT_STORE. "
        "`memory:`: this process only.",
        secret=True,
        also="QDRANT_URL",
    )
    index_key: str | None = _setting(None, "API key of the Qdrant server.", secret=True)
    store: str = _setting(
        "",
        "The source of truth. Empty: a SQLite file under the data folder. `postgresql://USER@HOST/NAME`: PostgreSQL. "
        "`sqlite://`: this process only.",
        secret=True,
    )
    knowledge: str = _setting(
        "",
        "Where sources, chunks and extractions live. Empty: beside the rest, in TOOLSCRIPT_STORE. "
        "`mongodb://HOST/NAME` or `mongodb+srv://…`: MongoDB.",
        secret=True,
        also="MONGODB_URI",
    )
    knowledge_rate: int = _setting(
        120,
        "How often one client (an address) may search in knowledge, in a minute: that needs no authentication. 0: as "
        "often as it likes.",
        read=int,
        minimum=0,
        maximum=100_000,
    )
    search_model: str = _setting(
        DEFAULT_MODEL,
        "Embedding model: a registered name, a hub repository, a folder with an ONNX model, or, with "
        "TOOLSCRIPT_EMBEDDINGS_URL, a model of that API.",
    )
    search_device: str = _setting(
        "auto",
        "auto tries the GPU and falls back to the CPU; gpu fails where there is none.",
        allowed=("auto", "cpu", "gpu"),
    )
    search_alpha: float = _setting(
        0.7, "Weight of meaning in tool search; the rest is words and names.", read=float, minimum=0, maximum=1
    )
    search_limit: int = _setting(3, "Most results of a tool search.", read=int, minimum=1, maximum=100)
    search_threshold: float = _setting(
        0.35, "Tools below this confidence are left out.", read=float, minimum=0, maximum=1
    )
    search_capabilities: Path | None = _setting(  # noqa: RUF009
        None,
        "A TOML or JSON file that adds to the tables of domains and capabilities, or replaces parts of them.",
        read=Path,
    )
    skills: Path | None = _setting(  # noqa: RUF009
        None,
        "A TOML or JSON file that adds to the packaged skills, or replaces them.",
        read=Path,
    )
    search_no_cache: bool = _setting(
        False, "Embeddings are made anew at every start, and not kept on disk.", read=_truth, allowed=("true", "false")
    )
    embeddings_url: str | None = _setting(
        None, "Base URL of an OpenAI-compatible embeddings API, used instead of a local model."
    )
    embeddings_key: str | None = _setting(None, "API key of the embeddings API.", secret=True)
    llm_url: str | None = _setting(
        None,
        "Base URL of an OpenAI-compatible chat API that sorts tools into skills, and reads out of knowledge what is "
        "worth knowing. Empty: the embedding model sorts, and nothing is read out.",
    )
    llm_key: str | None = _setting(None, "API key of the chat API.", secret=True)
    llm_model: str | None = _setting(None, "Model of the chat API. Needed with TOOLSCRIPT_LLM_URL.")
    llm_timeout: float = _setting(
        30.0, "Seconds that one answer of the chat API may take.", read=float, minimum=1, maximum=3600
    )
    llm_at_once: int = _setting(4, "Most questions to the chat API at a time.", read=int, minimum=1, maximum=64)
    hub_url: str = _setting("https://huggingface.co", "Where models are downloaded from.")
    hub_token: str | None = _setting(None, "Token for private or gated models on the hub.", secret=True)
    config: Path | None = _setting(  # noqa: RUF009
        None,
        "The one configuration file to read, of ours or of another MCP client, instead of `~/.toolscript.json` and "
        "`./.toolscript.json`.",
        read=Path,
    )
    connect_timeout: float = _setting(
        30.0, "Seconds that a server may take to start and to say what it offers.", read=float, minimum=1, maximum=3600
    )
    call_timeout: float = _setting(60.0, "Seconds that a tool call may take.", read=float, minimum=1, maximum=3600)
    api_key: str | None = _setting(
        None,
        "Key that every request must bring (`X-API-Key: KEY` or `Authorization: Bearer KEY`); those for documents "
        "bring a token instead. Needed off loopback.",
        secret=True,
    )
    environment: str = _setting(
        "development",
        "Where this runs. In production nothing that is meant for trials can be switched on.",
        allowed=("development", "production"),
    )
    tenant: str = _setting(
        "default",
        "Whose documents the command line and the MCP server on stdio work with; also those of requests that bypass "
        "authentication.",
    )
    jwt_secret: str | None = _setting(
        None, "Secret of the tokens (HS256) that requests for documents bring. At least 32 characters.", secret=True
    )
    jwt_jwks: str | None = _setting(
        None, "URL or file of the public keys (JWKS) of such tokens (RS256, ES256). Also beside a secret."
    )
    jwt_issuer: str | None = _setting(None, "Who must have issued a token (`iss`). Empty: anybody with the key.")
    jwt_audience: str | None = _setting(None, "Whom a token must be meant for (`aud`). Empty: not asked for.")
    jwt_tenant_claim: str = _setting("tenant_id", "The claim of a token that names the tenant.")
    jwt_plan_claim: str = _setting("plan", "The claim of a token that names the tenant's plan.")
    debug_bypass_auth: bool = _setting(
        False,
        "Requests for documents that send `X-Debug-Bypass-Auth: 1` need no token: for trials, never in production.",
        read=_truth,
        allowed=("true", "false"),
    )
    plans: Path | None = _setting(  # noqa: RUF009
        None, "A TOML or JSON file with the plans of tenants: most results, fields, requests a minute.", read=Path
    )
    page_secret: str | None = _setting(
        None,
        "Secret that page tokens are signed with, the same for all gateways of one service. Empty: made anew at every "
        "start, so that tokens of before are refused.",
        secret=True,
    )
    reranker: str | None = _setting(
        None,
        "What puts the best documents in a better order when a search asks for it: a folder with an ONNX "
        "cross-encoder, a hub repository, or the http(s) URL of a rerank service.",
    )
    reranker_key: str | None = _setting(None, "API key of the rerank service.", secret=True)
    reranker_model: str | None = _setting(None, "Model of the rerank service, where it has several.")
    events: str | None = _setting(
        None, "Where searches are logged for analysis: a .jsonl file, or an http(s) URL that takes JSON.", secret=True
    )
    otlp_endpoint: str | None = _setting(
        None, "Base URL of an OpenTelemetry collector (OTLP over HTTP) that gets the spans of searches."
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Further names, separated by commas, by which browsers and clients may call the gateway.", read=_names
    )
    host: str = _setting("127.0.0.1", "Address that the gateway listens on.")
    port: int = _setting(
        3780, "Port that the gateway listens on; 0 picks a free one.", read=int, minimum=0, maximum=65535
    )
    log_level: str = _setting(
        "warning",
        "Least severe log line written to standard error.",
        allowed=("debug", "info", "warning", "error"),
    )

    @property
    def data(self) -> Path:
        """The data folder with `~` resolved. Raises Invalid for a user that is not there."""
        try:
            return self.data_dir.expanduser().absolute()
        except RuntimeError as error:
            raise Invalid(
                f"the data folder {self.data_dir} cannot be found: {error}", details={"field": "--data-dir"}
            ) from error


def load_settings(*, variables: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Settings from the environment, overridden by the flags that are not None. An empty variable is as good as none.

    Raises Invalid, naming the variable or flag and what is allowed.
    """
    variables = os.environ if variables is None else variables
    unknown = flags.keys() - {each.name for each in fields(Settings)}
    if unknown:
        raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for each in fields(Settings):
        variable = get_variable(each.name)
        if flags.get(each.name) not in {None, ""}:
            flag = f"--{each.name.removeprefix('search_').replace('_', '-')}"
            values[each.name] = _checked(each, flags[each.name], flag)
        else:
            named = next((name for name in (variable, get_rule(each).also) if variables.get(name)), None)
            if named:
                values[each.name] = _checked(each, variables[named], named)
    return Settings(**values)


def get_variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def get_rule(each: Field[Any]) -> SettingRule:
    """What a setting's field says of it."""
    rule: SettingRule = each.metadata["rule"]
    return rule


def _checked(each: Field[Any], given: Any, source: str) -> Any:
    rule = get_rule(each)
    try:
        value = rule.read(given)
    except ValueError:
        raise _unusable(source, given, rule) from None
    if rule.read is _truth:
        return value
    outside = (rule.minimum is not None and not value >= rule.minimum) or (
        rule.maximum is not None and not value <= rule.maximum
    )
    if outside or (rule.allowed and value not in rule.allowed):
        raise _unusable(source, given, rule)
    return value


def _unusable(source: str, given: Any, rule: SettingRule) -> Invalid:
    if rule.allowed:
        wanted = f"one of {', '.join(rule.allowed)}"
    else:
        kind = "a whole number" if rule.read is int else "a number"
        wanted = f"{kind} from {rule.minimum:g} to {rule.maximum:g}"
    return Invalid(f"{source}={given} is not usable: give {wanted}", details={"field": source, "allowed": wanted})
