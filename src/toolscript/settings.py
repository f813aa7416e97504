"""All settings with their environment variables and defaults. Flags override variables, variables override defaults.

Plain dataclass fields instead of a settings library: the command line reads settings on every call, and importing a
library takes longer than a whole search. See docs/decisions/0006.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid

PREFIX = "TOOLSCRIPT_"
# How much of two variables must be the same for one to be taken for the other.
MIN_RESEMBLANCE = 0.7
DEFAULT_MODEL = "toolscript-small-2"


@dataclass(frozen=True, slots=True)
class SettingRule:
    """What a setting means, and its allowed values."""

    help: str
    bounds: tuple[float, float] | None = None
    allowed: tuple[str, ...] = ()
    secret: bool = False
    also: str = ""
    """A further variable that is read if the first is not set."""


def _parse_boolean(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    try:
        return values[str(text).lower()]
    except KeyError:
        raise ValueError(text) from None


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_READERS: dict[str, Callable[[str], Any]] = {
    "bool": _parse_boolean,
    "float": float,
    "float | None": float,
    "int": int,
    "Path": Path,
    "Path | None": Path,
    "tuple[str, ...]": _parse_names,
}


def _setting(default: Any, help: str, **rule: Any) -> Any:  # noqa: A002
    return field(default=default, metadata={"rule": SettingRule(help, **rule)}, repr=not rule.get("secret"))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an application. Each field is read from TOOLSCRIPT_ and its name in capitals."""

    data_dir: Path = _setting(  # noqa: RUF009
        Path("~/.toolscript"), "Folder for the embedded index, the embedded store and downloaded models."
    )
    index: str = _setting(
        "",
        "Where vectors are stored. Empty: Qdrant's engine in this process, in the data folder. "
        "`http(s)://HOST:6333`: a Qdrant server or cluster. `postgresql://USER@HOST/NAME`: PostgreSQL with pgvector; "
        "it can be the database of TOOLSCRIPT_STORE. `memory:`: in the memory of this process.",
        secret=True,
        also="QDRANT_URL",
    )
    index_key: str | None = _setting(None, "API key of the Qdrant server.", secret=True)
    store: str = _setting(
        "",
        "Database for tools, skills and documents, from which the index can be rebuilt. Empty: a SQLite file in the "
        "data folder. `postgresql://USER@HOST/NAME`: PostgreSQL. `sqlite://`: in the memory of this process.",
        secret=True,
    )
    knowledge: str = _setting(
        "",
        "Database for the sources, chunks and extractions of knowledge search. Empty: the one of TOOLSCRIPT_STORE. "
        "`mongodb://HOST/NAME` or `mongodb+srv://…`: MongoDB.",
        secret=True,
        also="MONGODB_URI",
    )
    knowledge_rate: int = _setting(
        120,
        "Maximum number of knowledge searches per minute and client address, because these may need no authentication. "
        "0: no limit.",
        bounds=(0, 100_000),
    )
    knowledge_public: bool = _setting(
        False,
        "Everyone who can reach the gateway may search knowledge, also where other requests need a key or a login.",
        allowed=("true", "false"),
    )
    ingest_folders: tuple[str, ...] = _setting(
        (),
        "Folders, separated by commas, whose files callers may have ingested by their paths; the same on all gateways "
        "of one store. Commands of the data folder's owner may name any path.",
    )
    search_model: str = _setting(
        DEFAULT_MODEL,
        "Embedding model: a registered name, a hub repository, a folder with an ONNX model, or a model of the API at "
        "TOOLSCRIPT_EMBEDDINGS_URL.",
    )
    text_model: str = _setting(
        "",
        "Embedding model for documents and knowledge. Empty: that of TOOLSCRIPT_SEARCH_MODEL; if that is trained for "
        "tools, the one that they are indexed with, at first all-MiniLM-L6-v2.",
    )
    search_device: str = _setting(
        "auto",
        "Device for the embedding model. auto: the GPU if there is one, otherwise the CPU. gpu: fails without a GPU.",
        allowed=("auto", "cpu", "gpu"),
    )
    search_alpha: float = _setting(
        0.7, "Weight of semantic similarity in tool search; the rest is the weight of words and names.", bounds=(0, 1)
    )
    search_limit: int = _setting(3, "Maximum number of results of a tool search.", bounds=(1, 100))
    search_threshold: float = _setting(0.35, "Minimum confidence of results in tool search.", bounds=(0, 1))
    search_capabilities: Path | None = _setting(  # noqa: RUF009
        None, "TOML or JSON file that extends or replaces parts of the tables of domains and capabilities."
    )
    skills: Path | None = _setting(  # noqa: RUF009
        None, "TOML or JSON file that extends or replaces the packaged skills."
    )
    search_no_cache: bool = _setting(
        False, "Do not cache embeddings on disk; they are computed again at every start.", allowed=("true", "false")
    )
    feedback: bool = _setting(
        True,
        "Learn from use: when a caller searches and then calls a hit, keep the request and move the tool's vector a "
        "bounded step toward it. The same for all gateways on one index.",
        allowed=("true", "false"),
    )
    embeddings_url: str | None = _setting(
        None, "Base URL of an OpenAI-compatible embeddings API, used instead of a local model."
    )
    embeddings_key: str | None = _setting(None, "API key of the embeddings API.", secret=True)
    llm_url: str | None = _setting(
        None,
        "Base URL of an OpenAI-compatible chat API that classifies tools into skills and makes extractions from books. "
        "Empty: the embedding model classifies, and there are no extractions.",
    )
    llm_key: str | None = _setting(None, "API key of the chat API.", secret=True)
    llm_model: str | None = _setting(None, "Model of the chat API. Required with TOOLSCRIPT_LLM_URL.")
    llm_timeout: float = _setting(30.0, "Timeout in seconds for one response of the chat API.", bounds=(1, 3600))
    llm_at_once: int = _setting(4, "Maximum number of concurrent requests to the chat API.", bounds=(1, 64))
    hub_url: str = _setting("https://huggingface.co", "URL of the hub that models are downloaded from.")
    hub_token: str | None = _setting(None, "Token for private or gated models on the hub.", secret=True)
    config: Path | None = _setting(  # noqa: RUF009
        None,
        "Configuration file with the MCP servers, of Toolscript or another MCP client, read instead of "
        "`~/.toolscript.json` and `./.toolscript.json`.",
    )
    connect_timeout: float = _setting(
        30.0, "Timeout in seconds for starting a server and listing its tools.", bounds=(1, 3600)
    )
    call_timeout: float = _setting(60.0, "Timeout in seconds for a tool call.", bounds=(1, 3600))
    server_start: str = _setting(
        "eager",
        "When servers are started whose entry has no `start`. eager: with the gateway. lazy: with the first call; "
        "their tools are found in the catalogue.",
        allowed=("eager", "lazy"),
    )
    server_idle_minutes: float | None = _setting(
        None,
        "Minutes without a call after which a server is stopped, until the next call, if its entry has no "
        "`idleMinutes`. 0: never. Empty: 10 for lazy servers, never for eager ones.",
        bounds=(0, 10_080),
    )
    breaker_failures: int = _setting(
        5,
        "Number of calls in a row that a server fails (it is lost, cannot be started, or does not answer in time) "
        "until calls to it are refused for a while. 0: never.",
        bounds=(0, 1000),
    )
    breaker_seconds: float = _setting(
        30.0, "Seconds for which calls to a server that kept failing are refused, until one is tried.", bounds=(1, 3600)
    )
    call_max_mib: int = _setting(
        64, "Maximum size in MiB of a tool's answer. A larger answer is an error.", bounds=(1, 1024)
    )
    result_tokens: int = _setting(
        10_000,
        "Maximum number of tokens (of four bytes each) of a tool's answer over MCP. Of a larger one the agent gets the "
        "beginning and a handle, with which `read_result` reads or searches the whole. 0: no limit.",
        bounds=(0, 900_000),
    )
    quarantine: str = _setting(
        "changed",
        "Which definitions of servers cannot be used until `toolscript quarantine approve` releases them. open: none. "
        "changed: those that changed since they were approved, and those whose text addresses the model. all: also new "
        "ones of a server that is known already. review: also the first ones of a new server. A server's entry can say "
        "otherwise with `trust`.",
        allowed=("open", "changed", "all", "review"),
    )
    registry_hints: bool = _setting(
        False,
        "Where `search_tools` finds no confident tool for an agent without a profile, name servers of the registries "
        "that `toolscript registry sync` has read. Only a person can add one.",
        allowed=("true", "false"),
    )
    api_key: str | None = _setting(
        None,
        "API key that requests must send (`X-API-Key: KEY` or `Authorization: Bearer KEY`), and that commands send; it "
        "has every scope, but no tenant: requests for documents send a token, or a key of `toolscript keys`. Required "
        "unless the gateway listens on a loopback address.",
        secret=True,
    )
    require_key: bool = _setting(
        False,
        "Every request needs a key, also those of programs on this machine, which otherwise need none where the "
        "gateway listens on a loopback address.",
        allowed=("true", "false"),
    )
    login_key: str | None = _setting(
        None,
        "Secret that encrypts the tokens of `toolscript login` in the store; the same for all gateways on one store. "
        "At least 32 characters. Empty: that of the file `login.key` in the data folder, which the first login "
        "creates.",
        secret=True,
    )
    profile: str = _setting(
        "default", "Profile of `toolscript mcp`: which tools its agent sees. The configuration defines profiles."
    )
    read_only: bool = _setting(
        False,
        "Nobody can find or call a tool whose server does not declare it read-only (`readOnlyHint`).",
        allowed=("true", "false"),
    )
    approval: str = _setting(
        "never",
        "Which tools a person has to approve before each call. writes: those whose server does not declare them "
        "read-only (`readOnlyHint`). destructive: the same without those that their server declares not destructive "
        "(`destructiveHint`). `approval` in a server's entry or a profile can ask for more, never for less.",
        allowed=("never", "destructive", "writes"),
    )
    code: tuple[str, ...] = _setting(
        (),
        "Languages of the programs that agents may run (`run_code`), separated by commas: python (needs the extra "
        "`code-python`), typescript (`code-typescript`). Empty: none.",
    )
    code_limits: tuple[str, ...] = _setting(
        (),
        "The most that a program may use, where that is less than by default: `seconds=30,calls=50`; also cpu_seconds, "
        "memory_mb and output_bytes.",
    )
    environment: str = _setting(
        "development",
        "production refuses settings that are meant for development, such as TOOLSCRIPT_DEBUG_BYPASS_AUTH.",
        allowed=("development", "production"),
    )
    tenant: str = _setting(
        "default",
        "Tenant for the command line, for the MCP server on stdio, for the machine's owner on loopback, and for "
        "requests that bypass authentication.",
    )
    jwt_secret: str | None = _setting(
        None, "Secret that verifies HS256 tokens of requests for documents. At least 32 characters.", secret=True
    )
    jwt_jwks: str | None = _setting(
        None, "URL or file of the public keys (JWKS) that verify RS256 and ES256 tokens. Can be combined with a secret."
    )
    jwt_issuer: str | None = _setting(None, "Required issuer of tokens (`iss`). Empty: not checked.")
    jwt_audience: str | None = _setting(None, "Required audience of tokens (`aud`). Empty: not checked.")
    oauth_resource: str | None = _setting(
        None,
        "Public URL of the MCP endpoint, such as `https://tools.example.com/mcp`. With it callers may log in with "
        "OAuth: every request needs a key or an access token of TOOLSCRIPT_JWT_ISSUER, signed with a key of "
        "TOOLSCRIPT_JWT_JWKS, whose audience is this URL (or TOOLSCRIPT_JWT_AUDIENCE) and whose scopes say what it "
        "allows.",
    )
    jwt_tenant_claim: str = _setting("tenant_id", "Claim of a token with the tenant.")
    jwt_plan_claim: str = _setting("plan", "Claim of a token with the tenant's plan.")
    debug_bypass_auth: bool = _setting(
        False,
        "Requests for documents with `X-Debug-Bypass-Auth: 1` need no token. For development only.",
        allowed=("true", "false"),
    )
    plans: Path | None = _setting(  # noqa: RUF009
        None, "TOML or JSON file with the plans of tenants: maximum number of results, fields, requests per minute."
    )
    page_secret: str | None = _setting(
        None,
        "Secret that signs page tokens, and seals the state of tools that need input; the same for all gateways of one "
        "service. Empty: a new one at every start, so that older tokens are refused.",
        secret=True,
    )
    reranker: str | None = _setting(
        None,
        "Reranker for document searches that request it: a folder with an ONNX cross-encoder, a hub repository, or the "
        "http(s) URL of a rerank service.",
    )
    reranker_key: str | None = _setting(None, "API key of the rerank service.", secret=True)
    reranker_model: str | None = _setting(None, "Model of the rerank service, if it has several.")
    events: str | None = _setting(
        None,
        "Destination of the events of searches and calls, for analysis: a .jsonl file, or an http(s) URL that accepts "
        "JSON.",
        secret=True,
    )
    audit: bool = _setting(
        True,
        "Keep an audit of every call and every search for tools, for `toolscript calls`: in a SQLite file in the data "
        "folder, or in PostgreSQL where TOOLSCRIPT_STORE is.",
        allowed=("true", "false"),
    )
    audit_arguments: str = _setting(
        "digest",
        "What events and the audit say about the arguments of a call. digest: a SHA-256. redacted: their values, "
        "without what looks like a secret, up to 4000 characters.",
        allowed=("digest", "redacted"),
    )
    audit_days: int = _setting(
        30, "Number of days after which events of the audit are deleted. 0: never.", bounds=(0, 36_500)
    )
    audit_max_mib: int = _setting(
        1024,
        "Maximum size of the audit in MiB; beyond it the oldest events are deleted. 0: no limit.",
        bounds=(0, 900_000),
    )
    otlp_endpoint: str | None = _setting(
        None, "Base URL of an OpenTelemetry collector (OTLP over HTTP) for the spans of requests, searches and calls."
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Further host names, separated by commas, under which the gateway accepts requests."
    )
    allowed_origins: tuple[str, ...] = _setting(
        (),
        "Origins of web pages, separated by commas, that may call the gateway and read its responses, such as "
        "`http://localhost:5173`. Without them only pages of the gateway's own origin may, not those of other ports of "
        "this machine.",
    )
    gateway_url: str | None = _setting(
        None,
        "URL of the gateway that commands and generated clients use, with TOOLSCRIPT_API_KEY as their key. Empty: "
        "commands use the gateway that runs on the data folder, or none.",
    )
    host: str = _setting("127.0.0.1", "Address on which the gateway listens.")
    port: int = _setting(3780, "Port on which the gateway listens; 0 picks a free one.", bounds=(0, 65535))
    log_level: str = _setting(
        "warning",
        "Minimum level of the log lines that are written to standard error.",
        allowed=("debug", "info", "warning", "error"),
    )

    @property
    def data(self) -> Path:
        """The data folder with `~` resolved. Raises Invalid for an unknown user."""
        try:
            return self.data_dir.expanduser().absolute()
        except RuntimeError as error:
            raise Invalid(f"invalid data folder {self.data_dir}: {error}", details={"field": "--data-dir"}) from error


def load_settings(*, variables: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Reads settings from the environment, overridden by the flags that are not None. Empty variables are ignored.

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
            values[each.name] = _parse(each, flags[each.name], flag)
        else:
            present = next((name for name in (variable, get_rule(each).also) if variables.get(name)), None)
            if present:
                values[each.name] = _parse(each, variables[present], present)
    return Settings(**values)


def find_unknown_variables(variables: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that begin like settings and are none, with the nearest setting's variable, if one is near.
    Variables of the tests are left out."""
    names = {get_variable(each.name): None for each in fields(Settings)}
    unknown = [v for v in variables if v.startswith(PREFIX) and v not in names and not v.startswith(f"{PREFIX}TEST_")]
    return {variable: _find_nearest(variable, list(names)) for variable in sorted(unknown)}


def _find_nearest(variable: str, names: list[str]) -> str | None:
    """Compares with whole names and with their ends: MODEL is near to SEARCH_MODEL."""
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(b=variable.removeprefix(PREFIX).upper(), autojunk=False)

    def compare(name: str) -> tuple[float, bool]:
        words = name.removeprefix(PREFIX).split("_")
        ratios = []
        for start in range(len(words)):
            matcher.set_seq1("_".join(words[start:]))
            ratios.append(matcher.ratio())
        return max(ratios), ratios[0] == max(ratios)

    best = max(names, key=compare)
    return best if compare(best)[0] >= MIN_RESEMBLANCE else None


def describe_values(settings: Settings, *, salt: str = "") -> dict[str, str]:
    """The values that are not the defaults, by variable; of a secret only a digest, to compare it."""
    values = {}
    for each in fields(Settings):
        value = getattr(settings, each.name)
        if value != each.default:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            digest = sha256(f"{salt}{text}".encode()).hexdigest() if get_rule(each).secret else None
            values[get_variable(each.name)] = digest or text
    return values


def is_secret(variable: str) -> bool:
    """Whether the value of a setting's variable is secret."""
    return any(get_rule(each).secret for each in fields(Settings) if get_variable(each.name) == variable)


def get_variable(name: str) -> str:
    """Returns the environment variable of a setting."""
    return PREFIX + name.upper()


def get_rule(each: Field[Any]) -> SettingRule:
    rule: SettingRule = each.metadata["rule"]
    return rule


def _parse(each: Field[Any], text: Any, source: str) -> Any:
    rule = get_rule(each)
    with suppress(ValueError):
        value = _READERS.get(str(each.type), str)(text)
        is_outside = rule.bounds and not rule.bounds[0] <= value <= rule.bounds[1]
        if not is_outside and (not rule.allowed or isinstance(value, bool) or value in rule.allowed):
            return value
    if rule.allowed:
        allowed = f"one of {', '.join(rule.allowed)}"
    else:
        kind = "a whole number" if each.type == "int" else "a number"
        allowed = "{} from {:g} to {:g}".format(kind, *(rule.bounds or ()))
    raise Invalid(f"invalid value {source}={text}: expected {allowed}", details={"field": source, "allowed": allowed})
