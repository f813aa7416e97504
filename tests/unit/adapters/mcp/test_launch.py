"""The command that runs a server in a sandbox: what it shows, what it refuses to show, and the engine of containers."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.fixtures.waiting import until
from tests.servers import make_scripted_server
from tests.servers.gateway_process import is_alive
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.launch import HOME, HOMES, Launch, build_launch
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import SandboxKind, SandboxSpec, ServerSpec, Transport

pytestmark = pytest.mark.req("O-04")

TIMEOUT_SECONDS = 60.0
# Records its command line, and runs what a container would run: with the variables that it names, in a session that
# does not end with it, until `rm` ends that.
ENGINE = """#!{python} -IS
import json, os, signal, subprocess, sys
arguments = sys.argv[1:]
with open({folder!r} + "/commands", "a") as file:
    print(json.dumps(arguments), file=file)
pid_file = {folder!r} + "/" + arguments[arguments.index("--name") + 1 if "--name" in arguments else -1]
if arguments[0] == "rm":
    os.killpg(int(open(pid_file).read()), signal.SIGKILL)
    sys.exit()
names = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--env"]
variables = {{}}
for name in names:
    key, equals, value = name.partition("=")
    variables[key] = value if equals else os.environ[key]
at = arguments.index("--entrypoint")
command = [arguments[at + 1], *arguments[at + 3:]]
with subprocess.Popen(command, env=variables, start_new_session=True) as process:
    with open(pid_file, "w") as file:
        file.write(str(process.pid))
    sys.exit(process.wait())
"""


def make_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the PATH with a bwrap that nobody starts."""
    folder = tmp_path / "programs"
    make_program(folder / "bwrap")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "linux")
    return folder


def wrap(
    data: Path, command: str, *args: str, cwd: Path | None = None, folders: dict[Path, str] | None = None
) -> Launch:
    """The launch of a command with folders, each of which is "rw" or "ro"."""
    shown = tuple((str(path), mode == "rw") for path, mode in (folders or {}).items())
    sandbox = SandboxSpec(SandboxKind.BWRAP, folders=shown)
    return build_launch(
        ServerSpec("a b", Transport.STDIO, command, args, cwd=str(cwd) if cwd else None, sandbox=sandbox), data
    )


def find_shown(launch: Launch) -> dict[str, str]:
    """The option by which each path outside the system is shown."""
    words = launch.words[: launch.words.index("--")]
    pairs = {words[i + 1]: word for i, word in enumerate(words) if word in {"--bind", "--ro-bind"}}
    return {path: option for path, option in pairs.items() if HOMES not in path}


def test_a_program_is_shown_with_its_libraries_its_links_and_its_interpreter(tmp_path: Path, programs: Path) -> None:
    python = make_program(tmp_path / "pythons" / "3.13" / "bin" / "python3.13", "ELF")
    (tmp_path / "pythons" / "3.13" / "lib").mkdir()
    (tmp_path / "pythons" / "3.13" / "share").mkdir()
    tool = make_program(tmp_path / "tools" / "git" / "bin" / "server", f"#!{tmp_path}/tools/git/bin/python -I\n")
    (tool.parent / "python").symlink_to(python)
    (tool.parents[1] / "pyvenv.cfg").touch()
    (programs / "server").symlink_to(tool)
    shown = find_shown(wrap(tmp_path / "data", "server"))
    tools, pythons = tmp_path / "tools" / "git", tmp_path / "pythons" / "3.13"
    paths = (programs / "server", tools / "bin", tools / "pyvenv.cfg", pythons / "bin", pythons / "lib")
    assert shown == dict.fromkeys(map(str, paths), "--ro-bind")


def test_the_interpreter_that_env_finds_is_shown(tmp_path: Path, programs: Path) -> None:
    node = make_program(tmp_path / "node" / "bin" / "node", "ELF")
    (programs / "node").symlink_to(node)
    make_program(programs / "server", "#!/usr/bin/env -S node --quiet\n")
    assert str(node.parent) in find_shown(wrap(tmp_path / "data", "server"))


def test_folders_are_shown_outer_ones_first_and_the_home_last(tmp_path: Path, programs: Path) -> None:
    make_program(programs / "server")
    outer, inner = tmp_path / "files", tmp_path / "files" / "out"
    inner.mkdir(parents=True)
    launch = wrap(tmp_path / "data", "server", str(inner), folders={inner: "rw", outer: "ro"})
    assert list(find_shown(launch).items())[:2] == [(str(outer), "--ro-bind"), (str(inner), "--bind")]
    (home,) = (tmp_path / "data" / HOMES).iterdir()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    at = launch.words.index(str(home))
    assert launch.words[at - 1 :][:3] == ("--bind", str(home), HOME)
    assert not {"--bind", "--ro-bind"} & set(launch.words[at:])


def test_homes_differ_for_names_that_look_alike(tmp_path: Path, programs: Path) -> None:
    make_program(programs / "server")
    for name in ("a b", "a-b", "A-b", "..", "日本"):
        spec = ServerSpec(name, Transport.STDIO, "server", sandbox=SandboxSpec(SandboxKind.BWRAP))
        build_launch(spec, tmp_path / "data")
    assert len({home.name.lower() for home in (tmp_path / "data" / HOMES).iterdir()}) == 5


@pytest.mark.req("X-03")
def test_what_cannot_be_shown_is_refused_before_the_start(tmp_path: Path, programs: Path) -> None:
    make_program(programs / "server")
    data, files, hidden = tmp_path / "data", tmp_path / "files", tmp_path / "hidden.txt"
    (files / "sub").mkdir(parents=True)
    (data / "sub").mkdir(parents=True)
    hidden.touch()
    (tmp_path / "link").symlink_to(data)
    refused = {
        "folder of the sandbox not found": {tmp_path / "nope": "ro"},
        f"cannot show {tmp_path}: Toolscript's data folder": {tmp_path: "ro"},
        f"cannot show {data}/sub: Toolscript's data folder": {data / "sub": "rw"},
        f"cannot show {tmp_path}/link: Toolscript's data folder": {tmp_path / "link": "ro"},
        f"cannot show {files}/sub apart from {files}, where": {files: "rw", files / "sub": "ro"},
    }
    for message, folders in refused.items():
        with pytest.raises(Unavailable, match=message):
            wrap(data, "server", folders=folders)
    with pytest.raises(Unavailable, match=f"cannot show {tmp_path}: Toolscript's data folder"):
        wrap(data, "server", cwd=tmp_path)
    with pytest.raises(Unavailable, match=f"does not show {hidden}, which `args` name"):
        wrap(data, "server", "--verbose", str(hidden))


def test_no_server_may_write_what_toolscript_obeys(tmp_path: Path, programs: Path) -> None:
    make_program(programs / "server")
    work, far, skills = tmp_path / "work", tmp_path / "far", tmp_path / "skills"
    for folder in (work / "sub", far, skills / "one"):
        folder.mkdir(parents=True)
    (work / "to-far").symlink_to(far)
    (tmp_path / "to-link").symlink_to(work / "to-far")
    (tmp_path / "to-work").symlink_to(work)

    def start(folder: Path, protected: Path, *, is_writable: bool = True) -> None:
        sandbox = SandboxSpec(SandboxKind.BWRAP, folders=((str(folder), is_writable),), protected=(str(protected),))
        build_launch(ServerSpec("a", Transport.STDIO, "server", sandbox=sandbox), tmp_path / "data")

    refused = [
        (work, work / ".toolscript.json"),  # does not exist yet
        (work, work / "sub" / "new" / ".env"),
        (work / "sub", work / "sub"),
        (tmp_path / "to-work", work / ".env"),
        (work, tmp_path / "to-work" / ".env"),
        (far, work / "to-far" / "plans.toml"),
        (work, tmp_path / "to-link" / "plans.toml"),  # only a link on the way is there
        (skills / "one", skills),
    ]
    for folder, protected in refused:
        with pytest.raises(Unavailable, match=rf"cannot show {folder} with :rw: Toolscript reads or runs {protected}"):
            start(folder, protected)
        start(folder, protected, is_writable=False)
    start(work / "sub", work / ".toolscript.json")


def test_no_link_in_a_writable_folder_is_followed(tmp_path: Path, programs: Path) -> None:
    files, private = tmp_path / "files", tmp_path / "private"
    make_program(private / "bin" / "python")
    (files / "bin").mkdir(parents=True)
    (files / "bin" / "python").symlink_to(private / "bin" / "python")
    launch = wrap(tmp_path / "data", str(files / "bin" / "python"), cwd=files / "bin", folders={files: "rw"})
    assert find_shown(launch) == {str(files): "--bind"}


@pytest.mark.req("X-03")
def test_a_sandbox_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_program(tmp_path / "programs" / "server").parent))
    monkeypatch.setattr(sys, "platform", "linux")
    spec = ServerSpec("a", Transport.STDIO, "server", sandbox=SandboxSpec(SandboxKind.BWRAP))
    with pytest.raises(Unavailable, match=r"^command not found: bwrap, which `sandbox` of the server asks for"):
        build_launch(spec, tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Unavailable, match=r"bwrap is for Linux alone\. Use docker or podman with an image"):
        build_launch(spec, tmp_path)


def test_certificates_of_the_machine_are_shown(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(programs / "server")
    certificates = tmp_path / "company.pem"
    certificates.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "nope.pem"))
    shown = find_shown(wrap(tmp_path / "data", "server"))
    assert str(certificates) in shown
    assert str(tmp_path / "nope.pem") not in shown


@pytest.mark.slow
async def test_an_engine_gets_the_whole_command_and_its_container_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_program(tmp_path / "engine" / "docker", ENGINE.format(python=sys.executable, folder=str(tmp_path)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'engine'}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    files = tmp_path / 'a, "b"'
    files.mkdir()
    sandbox = SandboxSpec(
        SandboxKind.DOCKER, folders=((str(files), True), (str(tmp_path / "engine"), False)), image="python:3.13"
    )
    spec = make_scripted_server(env={"TOKEN": "S3cretT0ken"}, deaf=True)
    spec = replace(spec, sandbox=sandbox, cwd=str(files))
    async with McpServers(data=tmp_path / "data").connect(spec, within=TIMEOUT_SECONDS) as server:
        tools = {item.listed_name: item for item in (await server.list_items()).items}
        seen = {
            name: (await server.call(tools["env"], {"name": name}, within=TIMEOUT_SECONDS)).structured
            for name in ("TOKEN", "HOME")
        }
        pid = (await server.call(tools["pid"], {}, within=TIMEOUT_SECONDS)).structured
        assert isinstance(pid, dict)
        process = psutil.Process(pid["pid"])
    await until(lambda: not is_alive(process))
    assert seen == {"TOKEN": {"value": "S3cretT0ken"}, "HOME": {"value": HOME}}
    started, removed = map(json.loads, (tmp_path / "commands").read_text().splitlines())
    assert removed == ["rm", "--force", started[started.index("--name") + 1]]
    text = " ".join(started)
    assert "S3cretT0ken" not in text
    for option in (
        *("run --rm --interactive --init", "--read-only --tmpfs /tmp", "--cap-drop ALL", "--env TOKEN"),
        *("--security-opt no-new-privileges", "--pids-limit 512", "--network none", f"--env HOME={HOME}"),
        f"--mount type=bind,source={tmp_path}/engine,target={tmp_path}/engine,readonly",
        f'--mount type=bind,"source={tmp_path}/a, ""b""","target={tmp_path}/a, ""b"""',
        f",target={HOME} --workdir {files}",
        f"--entrypoint {spec.command} python:3.13 -I -S",
        f"--user 1000:{os.getgid()}",
    ):
        assert option in text


def test_podman_without_root_keeps_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_program(tmp_path / "podman").parent))
    sandbox = SandboxSpec(SandboxKind.PODMAN, image="node:22")
    for uid, options in ((1000, "--userns keep-id"), (0, f"--user 0:{os.getgid()}")):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        launch = build_launch(ServerSpec("a", Transport.STDIO, "npx", sandbox=sandbox), tmp_path / "data")
        assert options in " ".join(launch.words)


def test_with_network_an_engine_uses_its_own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_program(tmp_path / "docker").parent))
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    sandbox = SandboxSpec(SandboxKind.DOCKER, network=True, image="node:22")
    launch = build_launch(ServerSpec("a", Transport.STDIO, "npx", sandbox=sandbox), tmp_path / "data")
    assert "--network" not in launch.words
    assert launch.environment["DOCKER_HOST"] == "unix:///run/user/1000/docker.sock"
    assert "DOCKER_HOST" not in launch.words


@pytest.mark.parametrize("kind", SandboxKind)
def test_what_the_launcher_reads_itself_does_not_come_from_the_entry(
    tmp_path: Path, programs: Path, kind: SandboxKind
) -> None:
    for name in ("server", "docker", "podman"):
        make_program(programs / name)
    sandbox = SandboxSpec(kind, image="" if kind is SandboxKind.BWRAP else "node:22")
    names = (
        *("DOCKER_CONFIG", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE"),
        *("CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "PODMAN_CONNECTIONS_CONF", "REGISTRY_AUTH_FILE"),
    )
    env = {**dict.fromkeys(names, "/srv/out"), "LD_PRELOAD": "/srv/out/x.so", "DOCKER_TOKEN": "S3cret"}
    spec = ServerSpec("a", Transport.STDIO, "server", env={**env, "PATH": str(programs)}, sandbox=sandbox)
    launch = build_launch(spec, tmp_path / "data")
    assert "/srv/out" not in " ".join(launch.environment.values())
    assert launch.environment["DOCKER_TOKEN"] == "S3cret"
    assert launch.environment.get("PATH") != str(programs)
    text = " ".join(launch.words)
    option = "--setenv LD_PRELOAD " if kind is SandboxKind.BWRAP else "--env LD_PRELOAD="
    assert f"{option}/srv/out/x.so" in text
    assert [name for name in names if name not in text] == []
    assert "S3cret" not in text
