"""What is run for a server: its own program, or a program that runs it in a sandbox.

Bubblewrap shows the system's programs and a home of the server's own, both without the user's files. Docker and podman
do that with an image. Neither limits memory, processor time or the size of that home.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp.client.stdio import get_default_environment

from toolscript.adapters.mcp.machine_environment import select_network_variables
from toolscript.adapters.storage.private_files import make_private_folder
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import SandboxKind, SandboxSpec, ServerSpec

HOMES = "sandboxes"
"""The folder of the homes, in the data folder."""
HOME = "/home/sandbox"
MAX_PROCESSES = 512
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# Of /etc: what programs need to find libraries, users, names of hosts, certificates and time zones.
_ETC = (
    "alternatives ca-certificates ca-certificates.conf crypto-policies debian_version fonts gai.conf group host.conf "
    "hosts ld.so.cache ld.so.conf ld.so.conf.d locale.alias localtime magic mime.types nsswitch.conf "
    "os-release passwd pki protocols python3 resolv.conf services ssl/cert.pem ssl/certs ssl/openssl.cnf terminfo "
    "timezone"
).split()
_SHOWN = tuple(map(Path, (*_SYSTEM, *(f"/etc/{name}" for name in _ETC))))
# What is there inside, also where this machine has other files.
_OWN = tuple(map(Path, ("/dev", HOME, "/proc", "/tmp")))  # noqa: S108  (a name inside the sandbox)
# What bubblewrap and the engines read themselves, outside the sandbox: an entry may name a folder where the server
# writes, so they get these from the gateway alone.
_LAUNCHER_VARIABLES = (
    r"LD_[A-Z_]+|PATH|HOME|XDG_[A-Z_]+|DOCKER_(HOST|CONTEXT|CONFIG|CERT_PATH|TLS_VERIFY|API_VERSION)|"
    r"CONTAINER_(HOST|SSHKEY|CONNECTION)|CONTAINERS_[A-Z_]+|PODMAN_CONNECTIONS_CONF|STORAGE_(DRIVER|OPTS)|"
    r"REGISTRY_AUTH_FILE"
)
_SHEBANG = rb"#!\s*(/\S+)(?:\s+(?:-S\s+)?([^\s/=-][^\s/=]*))?"
_MAX_LINKS = 40


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to run."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str | None
    cleanup: tuple[str, ...] = ()
    """The command that ends what is left when the process has ended."""
    is_supervised: bool = False
    """Whether the process is one that ends the server when it ends itself."""


def build_launch(spec: ServerSpec, data: Path | None) -> Launch:
    """What to run: with a minimal environment, the proxies and certificates of this machine, and the configured
    variables. The homes of sandboxes are in the data folder. Raises Unavailable with what is missing."""
    network_variables = select_network_variables(os.environ, spec.env)
    environment = {**get_default_environment(), **network_variables, **spec.env}
    if sys.platform == "win32":  # where `Path` and `PATH` are one variable
        environment = {name.upper(): value for name, value in environment.items()}
    command = shutil.which(spec.command, path=environment.get("PATH"))
    has_image = spec.sandbox is not None and spec.sandbox.image != ""
    if command is None and not has_image:
        raise Unavailable(f"command not found: {spec.command}. Install it, or give its full path")
    if spec.cwd and not Path(spec.cwd).is_dir():
        raise Unavailable(f"working folder not found: {spec.cwd}")
    plain = Launch((command or spec.command, *spec.args), environment, spec.cwd)
    if spec.sandbox is None:
        return plain
    assert data is not None  # noqa: S101  (every application has a data folder)
    sandbox = _SandboxedServer(spec, spec.sandbox, data)
    if has_image:
        return sandbox.run_image(environment, [*network_variables, *spec.env])
    return sandbox.run_program(plain, [value for name, value in environment.items() if name in network_variables])


class _SandboxedServer:
    """A sandbox of one server: what it shows, and the command that makes it."""

    def __init__(self, spec: ServerSpec, sandbox: SandboxSpec, data: Path) -> None:
        self._spec = spec
        self._sandbox = sandbox
        self._data = data
        # Names of servers have characters that names of folders cannot have, and may differ in case alone.
        readable = re.sub("[^a-zA-Z0-9-]", "-", spec.name)
        self._home = data / HOMES / f"{readable}-{hashlib.sha256(spec.name.encode()).hexdigest()[:8]}"
        self._program = _find_sandbox_program(sandbox.kind)
        self._visible = self._list_folders()

    def run_program(self, plain: Launch, certificates: list[str]) -> Launch:
        """Runs a program of this machine with bubblewrap."""
        command = Path(plain.words[0]).absolute()
        programs = [*self._find_programs(command, plain.environment), *filter(_is_file, map(Path, certificates))]
        for each in programs:
            self._show(each)
        self._check_arguments()
        options = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL"]
        options += ["--share-net"] if self._sandbox.network else []
        # Without this, root could write to /proc/sys although it has no capability.
        options += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
        for path in map(str, _SHOWN):
            options += ["--ro-bind-try", path, path]
        for folder in sorted(self._visible):  # a folder before the folders in it
            options += ["--bind" if self._visible[folder] else "--ro-bind", str(folder), str(folder)]
        values = _select_launcher_variables({**plain.environment, "HOME": HOME, **self._spec.env})
        options += [word for name, value in values.items() for word in ("--setenv", name, value)]
        # The home comes last: nothing is mounted at a place that the server can turn into a link.
        options += ["--bind", self._make_home(), HOME, "--remount-ro", "/", "--chdir", self._spec.cwd or HOME, "--"]
        environment = {name: value for name, value in plain.environment.items() if name not in values}
        words = (self._program, *options, str(command), *plain.words[1:])
        return Launch(words, environment, None, is_supervised=True)

    def run_image(self, environment: Mapping[str, str], variables: list[str]) -> Launch:
        """Runs a program of an image with docker or podman. The engine takes the values of variables from its own
        environment: they are in no list of processes."""
        name = f"toolscript-{self._home.name}-{secrets.token_hex(4)}"
        options = ["--rm", "--interactive", "--init", "--name", name, "--read-only", "--tmpfs", "/tmp"]  # noqa: S108
        options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", str(MAX_PROCESSES)]
        options += [] if self._sandbox.network else ["--network", "none"]
        if sys.platform != "win32":
            is_rootless = self._sandbox.kind is SandboxKind.PODMAN and os.getuid() != 0
            options += ["--userns", "keep-id"] if is_rootless else ["--user", f"{os.getuid()}:{os.getgid()}"]
        for folder in sorted(self._visible):
            options += ["--mount", _format_mount(folder, str(folder), is_writable=self._visible[folder])]
        options += ["--mount", _format_mount(Path(self._make_home()), HOME, is_writable=True)]
        options += ["--workdir", self._spec.cwd or HOME]
        values = _select_launcher_variables({"HOME": HOME, **self._spec.env})
        named = [each for each in dict.fromkeys(variables) if each not in values]
        for variable in (*(f"{key}={value}" for key, value in values.items()), *named):
            options += ["--env", variable]
        own = {key: value for key, value in environment.items() if key not in values}
        options += ["--entrypoint", self._spec.command, self._sandbox.image]
        words = (self._program, "run", *options, *self._spec.args)
        cleanup = (self._program, "rm", "--force", name)
        return Launch(words, {**own, **_select_launcher_variables(os.environ)}, None, cleanup)

    def _list_folders(self) -> dict[Path, bool]:
        """The listed folders and the working folder, and whether each is writable. Raises Unavailable for a folder that
        is not there, that would show the data folder, where a server could write what Toolscript obeys, or that a
        server could replace by a link to another."""
        folders = {Path(path): is_writable for path, is_writable in self._sandbox.folders}
        for folder in folders:
            if not folder.exists():
                raise Unavailable(f"folder of the sandbox not found: {folder}")
        cwd = Path(os.path.normpath(self._spec.cwd)) if self._spec.cwd else None
        if cwd and not any(cwd.is_relative_to(folder) for folder in folders):
            folders[cwd] = False
        for inner, is_writable in folders.items():
            self._refuse_data_folder(inner)
            if is_writable:
                self._refuse_protected_files(inner)
            for outer in (each for each, is_writable in folders.items() if is_writable and each != inner):
                if _is_inside(inner, outer):
                    raise Unavailable(f"the sandbox cannot show {inner} apart from {outer}, where the server may write")
        return folders

    def _refuse_data_folder(self, path: Path) -> None:
        if _is_inside(self._data, path) or _is_inside(path, self._data):
            raise Unavailable(f"the sandbox cannot show {path}: Toolscript's data folder is {self._data}")

    def _refuse_protected_files(self, folder: Path) -> None:
        for path in self._sandbox.protected:
            if any(_is_inside(place, folder) or _is_inside(folder, place) for place in _follow(Path(path))):
                raise Unavailable(
                    f"the sandbox cannot show {folder} with :rw: Toolscript reads or runs {path}, also if it is "
                    "created later. Leave :rw out, or list a folder without it"
                )

    def _show(self, path: Path) -> None:
        """Shows a path of this machine, unless it can be seen already."""
        if not self._can_see(path):
            self._refuse_data_folder(path)
            self._visible[path] = False

    def _can_see(self, path: Path) -> bool:
        return any(path.is_relative_to(each) for each in (*_SHOWN, *self._visible))

    def _is_writable(self, path: Path) -> bool:
        return any(is_writable and _is_inside(path, each) for each, is_writable in self._visible.items())

    def _find_programs(self, command: Path, environment: Mapping[str, str]) -> Iterator[Path]:
        """What a program needs to start: the file or its `bin` folder with the libraries beside it, and the same for
        what it links to and for its interpreter. Follows nothing that the server can write."""
        for _ in range(_MAX_LINKS):
            folder = command.parent
            if self._is_writable(command):
                return
            if folder.name == "bin":
                yield from filter(Path.exists, (folder, *(folder.parent / n for n in ("lib", "lib64", "pyvenv.cfg"))))
            else:
                yield command
            if command.is_symlink():
                command = Path(os.path.normpath(folder / command.readlink()))
            elif interpreter := _find_interpreter(command, environment):
                command = interpreter
            else:
                return

    def _check_arguments(self) -> None:
        """Raises Unavailable for an argument that names a file which the sandbox hides: the program would only say
        that there is no such file."""
        for argument in self._spec.args:
            path = Path(os.path.normpath(argument))
            is_own = path.parent == path or path in _OWN or self._can_see(path)
            if path.is_absolute() and not is_own and path.exists():
                raise Unavailable(
                    f"the sandbox does not show {path}, which `args` name: add it to `folders` of `sandbox`, with :rw "
                    "at its end if the server may write there"
                )

    def _make_home(self) -> str:
        make_private_folder(self._home)
        return str(self._home)


def _select_launcher_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if re.fullmatch(_LAUNCHER_VARIABLES, name)}


def _find_sandbox_program(kind: SandboxKind) -> str:
    if kind is SandboxKind.BWRAP and sys.platform != "linux":
        raise Unavailable("sandbox: bwrap is for Linux alone. Use docker or podman with an image")
    program = shutil.which(kind)
    if program is None:
        raise Unavailable(f"command not found: {kind}, which `sandbox` of the server asks for")
    return program


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path is in a folder or the folder itself, by its name or by where links lead."""
    return any(one.is_relative_to(other) for one in (path, path.resolve()) for other in (folder, folder.resolve()))


def _follow(path: Path) -> Iterator[Path]:
    """A path, and each path that its links lead to, one after the other."""
    for _ in range(_MAX_LINKS):
        yield path
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            return
        path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))


def _is_file(path: Path) -> bool:
    return path.is_absolute() and path.exists()


def _find_interpreter(script: Path, environment: Mapping[str, str]) -> Path | None:
    """The program that the first line of a script names, also through `env`."""
    try:
        with script.open("rb") as file:
            match = re.match(_SHEBANG, file.readline(1024))
    except OSError:
        return None
    if match is None:
        return None
    program = Path(os.fsdecode(match[1]))
    if program.name != "env" or not match[2]:
        return program
    found = shutil.which(os.fsdecode(match[2]), path=environment.get("PATH"))
    return Path(found) if found else None


def _format_mount(source: Path, target: str, *, is_writable: bool) -> str:
    """The value of `--mount`, a line of CSV."""
    fields = ["type=bind", f"source={source}", f"target={target}", *([] if is_writable else ["readonly"])]
    return ",".join('"' + field.replace('"', '""') + '"' if re.search('[",\n]', field) else field for field in fields)
