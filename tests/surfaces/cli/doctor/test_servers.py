"""`toolscript doctor` names the cause of each broken server and what to do, from a gateway that runs or by itself."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import toolscript.adapters.mcp.client  # noqa: F401  (imported late, it would count as part of the servers' start)
from tests.servers import make_scripted_spec
from tests.servers.processes import find_free_port
from toolscript.surfaces.cli.main import run

pytestmark = [pytest.mark.req("A-05", "G-02"), pytest.mark.slow]


class StatusServer(BaseHTTPRequestHandler):
    """Answers every request with the status that its path begins with."""

    def do_POST(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_statuses(certificate: Path | None = None) -> Iterator[int]:
    """The port of a server of statuses, with TLS if there is a certificate."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StatusServer) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def write_certificate(file: Path) -> Path:
    """Writes a certificate that nobody has signed, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    none = serialization.NoEncryption()
    file.write_bytes(pem + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none))
    return file


def make_program(code: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", "-c", code]}


def ask_doctor(folder: Path, *words: str, code: int = 3) -> dict[str, Any]:
    arguments = ["doctor", "--json", "--data-dir", str(folder), *words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["toolscript", *arguments])
        patch.setenv("TOOLSCRIPT_PORT", str(find_free_port()))
        done = CliRunner().invoke(run, arguments)
    assert done.exit_code == code, done.output
    return dict(json.loads(done.stdout))


def read_causes(response: dict[str, Any]) -> dict[str, Any]:
    """The causes of the servers that fail, by name; each says what to do."""
    broken = [each for each in response["findings"] if each["area"] == "servers" and each["level"] == "error"]
    assert all(each["text"] and each["action"] for each in broken), broken
    return {each["subject"]: each["cause"] for each in broken}


def write_servers(**servers: Any) -> None:
    Path(".toolscript.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


NODE_TRAILER = "SyntaxError: Unexpected token '??='\\n    at wrap (vm.js:3)\\n\\nNode.js v14.21.3\\n"
BROKEN = {
    "missing": ({"command": "no-such-command-anywhere"}, "command_not_found"),
    "folder": (make_scripted_spec() | {"cwd": "no/such/folder"}, "folder_not_found"),
    "crashes": (make_scripted_spec(crash=True), "exited"),
    "module": (make_program("import no_such_module"), "missing_module"),
    "node": (
        make_program(f"import sys; sys.stderr.write({NODE_TRAILER!r}.encode().decode('unicode_escape')); sys.exit(1)"),
        "wrong_node",
    ),
    "unknown": ({"url": "http://no-such-host.invalid/mcp"}, "name_not_resolved"),
    "login": ({"url": "http://127.0.0.1:STATUS/401/mcp"}, "needs_login"),
    "key": ({"url": "http://127.0.0.1:STATUS/401/mcp", "headers": {"Authorization": "Bearer old"}}, "http_401"),
    "forbidden": ({"url": "http://127.0.0.1:STATUS/403/mcp"}, "http_403"),
    "path": ({"url": "http://127.0.0.1:STATUS/404/mcp"}, "http_404"),
    "path_sse": ({"type": "sse", "url": "http://127.0.0.1:STATUS/404/sse"}, "http_404"),
    "overloaded": ({"url": "http://127.0.0.1:STATUS/503/mcp"}, "http_error"),
    "web_page": ({"url": "http://127.0.0.1:STATUS/200/mcp"}, "not_mcp"),
    "refused": ({"url": "http://127.0.0.1:UNUSED/mcp"}, "refused"),
    "certificate": ({"url": "https://localhost:SECURE/200/mcp"}, "certificate"),
    "plain": ({"url": "https://127.0.0.1:STATUS/200/mcp"}, "not_tls"),
}


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[dict[str, int]]:
    with ExitStack() as stack:
        certificate = write_certificate(tmp_path / "certificate.pem")
        plain, secure = stack.enter_context(serve_statuses()), stack.enter_context(serve_statuses(certificate))
        yield {"STATUS": plain, "SECURE": secure, "UNUSED": find_free_port()}


def test_each_broken_server_is_named_with_its_cause(small_folder: Path, ports: dict[str, int]) -> None:
    text = json.dumps({name: entry for name, (entry, _) in BROKEN.items()})
    for word, port in ports.items():
        text = text.replace(word, str(port))
    write_servers(**json.loads(text), well=make_scripted_spec(tools=["echo"]))
    response = ask_doctor(small_folder)
    assert read_causes(response) == {name: cause for name, (_, cause) in BROKEN.items()}
    (well,) = [each for each in response["findings"] if each["subject"] == "well"]
    assert (well["level"], well["text"]) == ("ok", "1 tool")
    assert "old" not in str([each["text"] for each in response["findings"] if each["subject"] == "key"])
    assert not small_folder.exists()


def test_silence_and_lines_that_are_no_messages_have_different_causes(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_CONNECT_TIMEOUT", "4")
    chatty = make_program("import time; print('Listening on 3000', flush=True); time.sleep(600)")
    write_servers(silent=make_scripted_spec(hang=True, log=["Need to install: x"]), chatty=chatty)
    response = ask_doctor(small_folder)
    assert read_causes(response) == {"silent": "timeout", "chatty": "not_messages"}
    texts = {each["subject"]: each["text"] for each in response["findings"] if each["area"] == "servers"}
    assert "Need to install: x" in texts["silent"]
    assert "Listening on 3000" in texts["chatty"]


def test_without_starting_servers_only_their_commands_are_looked_for(small_folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "was-started"
    program = make_program(f"open({str(trace)!r}, 'w')")
    write_servers(program=program, gone={"command": "no-such-command-anywhere"}, web={"url": "http://127.0.0.1:9/mcp"})
    assert read_causes(ask_doctor(small_folder, "--no-start")) == {"gone": "command_not_found"}
    assert not trace.exists()


@pytest.mark.req("O-04")
def test_a_sandbox_that_is_not_installed_is_named(
    small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "programs" / "docker"
    docker.parent.mkdir()
    docker.touch(0o755)
    monkeypatch.setenv("PATH", str(docker.parent))
    kinds = {kind: {"kind": kind, "image": "node:22"} for kind in ("docker", "podman")}
    write_servers(**{kind: {"command": "npx", "sandbox": sandbox} for kind, sandbox in kinds.items()})
    response = ask_doctor(small_folder, "--no-start")
    assert read_causes(response) == {"podman": "sandbox_missing"}
    texts = {each["subject"]: each["text"] for each in response["findings"] if each["area"] == "servers"}
    assert texts["docker"] == "not started; its command is npx of the image node:22"


def test_a_running_gateway_states_the_causes_and_no_server_is_started_again(
    small_folder: Path, start_gateway: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_servers(
        well=make_scripted_spec(tools=["echo"], sloppy=True),
        gone={"command": "no-such-command-anywhere"},
        crashes=make_scripted_spec(crash=True),
    )
    start_gateway()
    monkeypatch.setattr("toolscript.surfaces.cli.doctor.servers.try_servers", None)
    response = ask_doctor(small_folder)
    assert read_causes(response) == {"gone": "command_not_found", "crashes": "exited"}
    by_area: dict[str, list[Any]] = {}
    for each in response["findings"]:
        by_area.setdefault(each["area"], []).append(each)
    assert [each["level"] for each in by_area["gateway"]] == ["ok"]
    assert "is ready" in by_area["gateway"][0]["text"]
    assert any("left out: " in each["text"] and each["subject"] == "well" for each in by_area["servers"])
    (crash,) = [each for each in by_area["servers"] if each["subject"] == "crashes"]
    assert "toolscript servers log crashes" in crash["action"]
    assert "open in the gateway" in by_area["index"][-1]["text"]

    monkeypatch.setattr("toolscript.surfaces.cli.doctor.gateway.__version__", "0.0.9")
    versions = [each for each in ask_doctor(small_folder)["findings"] if each["cause"] == "version"]
    assert [("0.0.9" in each["text"], "gateway stop" in each["action"]) for each in versions] == [(True, True)]
