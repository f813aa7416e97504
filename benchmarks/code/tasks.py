"""Ten tasks of several steps over real servers: the calls of an agent that makes no mistake, and the program that makes
the same ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Step = tuple[str, dict[str, Any]]

LOGS = [f"service_{number:02}.log" for number in range(1, 13)]
NOTES = [f"note_{number}.md" for number in range(1, 7)]
ZONES = ["Europe/Lisbon", "Asia/Tokyo", "America/Lima", "Africa/Cairo", "Asia/Kolkata", "Australia/Sydney"]
REPOSITORY = "{repository}"
COMMITS = ["HEAD", "HEAD~1", "HEAD~2", "HEAD~3"]


@dataclass(frozen=True, slots=True)
class Task:
    """What somebody wants: how its tools are searched, which calls it takes, and the program for it."""

    name: str
    queries: tuple[str, ...]
    steps: list[Step]
    program: str
    is_right: Callable[[Any], bool]


def prepare(files: Path, repository: Path) -> None:
    """Writes the files that the tasks are about."""
    for number, name in enumerate(LOGS):
        lines = [
            f"2026-11-{number + 1:02}T10:{minute:02}:00Z {'ERROR' if minute % (number + 3) == 0 else 'INFO'} "
            f"request {number * 1000 + minute} took {minute * 7 % 90} ms"
            for minute in range(40)
        ]
        if number % 5 == 2:
            lines.append("2026-11-30T00:00:00Z ERROR upstream timeout after 30 s")
        (files / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [f"item {number},{number % 9 + 1}.{number % 10}0" for number in range(1, 61)]
    (files / "prices.csv").write_text("\n".join(["item,price", *rows]) + "\n", encoding="utf-8")
    people = [f"Person {number},engineer,joined in {2000 + number}" for number in range(1, 21)]
    (files / "people.csv").write_text("\n".join(["name,role,note", *people]) + "\n", encoding="utf-8")
    for name in NOTES:
        (files / name).write_text(
            f"Thoughts about {name}.\n" + "More of them, at some length.\n" * 20, encoding="utf-8"
        )
    for name, port in (("old.ini", 80), ("new.ini", 8080)):
        settings = [f"setting_{number}={number}" for number in range(50)] + [f"port={port}"]
        (files / name).write_text("\n".join(settings) + "\n", encoding="utf-8")
    for number in range(3):
        (repository / f"file_{number}.txt").write_text("text\n" * 30, encoding="utf-8")
        author = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
        commit = [*author, "commit", "--quiet", f"--message=Add file {number}"]
        for command in (["add", "."], commit):
            subprocess.run(["git", "-C", str(repository), *command], check=True)


def _write_note(name: str) -> str:
    return f"Thoughts about {name}.\n" + "More of them, at some length.\n" * 20


def _read(name: str) -> Step:
    return "filesystem__read_text_file", {"path": name}


def _make_people() -> list[dict[str, Any]]:
    return [
        {"name": f"Person {n}", "entityType": "engineer", "observations": [f"joined in {2000 + n}"]}
        for n in range(1, 21)
    ]


_GATHER_LOGS = """\
import asyncio

listing = (await tools.filesystem.list_directory({"path": "."}))["content"]
names = [line[7:] for line in listing.splitlines() if line.endswith(".log")]
texts = await asyncio.gather(*[tools.filesystem.read_text_file({"path": name}) for name in names])
"""
LIST_FILES: Step = ("filesystem__list_directory", {"path": "."})
SUM = "+".join(f"{number % 9 + 1}.{number % 10}0" for number in range(1, 61))

TASKS = [
    Task(
        "Count the errors in 12 log files",
        ("list the files in a folder", "read a text file"),
        [LIST_FILES, *map(_read, LOGS)],
        _GATHER_LOGS + 'return {n: t["content"].count(" ERROR ") for n, t in zip(names, texts)}',
        lambda value: len(value) == len(LOGS) and value[LOGS[0]] == 14,
    ),
    Task(
        "Name the logs with a timeout",
        ("list the files in a folder", "read a text file"),
        [LIST_FILES, *map(_read, LOGS)],
        _GATHER_LOGS + 'return [n for n, t in zip(names, texts) if "timeout" in t["content"]]',
        lambda value: len(value) == 2,
    ),
    Task(
        "Add up 60 prices",
        ("read a text file", "calculate an expression"),
        [_read("prices.csv"), ("calculator__calculate", {"expression": SUM})],
        'text = (await tools.filesystem.read_text_file({"path": "prices.csv"}))["content"]\n'
        'terms = [line.split(",")[1] for line in text.splitlines()[1:]]\n'
        'return (await tools.calculator.calculate({"expression": "+".join(terms)}))["result"]',
        lambda value: float(value) > 100,
    ),
    Task(
        "The time in six cities",
        ("what time is it in a city",),
        [("time__get_current_time", {"timezone": zone}) for zone in ZONES],
        "import asyncio, json\n"
        f"zones = {ZONES}\n"
        'found = await asyncio.gather(*[tools.time.get_current_time({"timezone": z}) for z in zones])\n'
        'return {z: json.loads(f["content"][0]["text"])["datetime"][11:16] for z, f in zip(zones, found)}',
        lambda value: len(value) == 6,
    ),
    Task(
        "A meeting at 15:00 in six time zones",
        ("convert a time to another time zone",),
        [
            ("time__convert_time", {"source_timezone": "UTC", "time": "15:00", "target_timezone": zone})
            for zone in ZONES
        ],
        "import asyncio, json\n"
        f"zones = {ZONES}\n"
        "found = await asyncio.gather(*[\n"
        '    tools.time.convert_time({"source_timezone": "UTC", "time": "15:00", "target_timezone": z})\n'
        "    for z in zones\n"
        "])\n"
        'return {z: json.loads(f["content"][0]["text"])["target"]["datetime"][11:16] for z, f in zip(zones, found)}',
        lambda value: value["Asia/Tokyo"] == "00:00",
    ),
    Task(
        "Put 20 people of a file into the memory",
        ("read a text file", "create entities in the knowledge graph"),
        [_read("people.csv"), ("memory__create_entities", {"entities": _make_people()})],
        'text = (await tools.filesystem.read_text_file({"path": "people.csv"}))["content"]\n'
        'rows = [line.split(",") for line in text.splitlines()[1:]]\n'
        'made = await tools.memory.create_entities({"entities": [\n'
        '    {"name": r[0], "entityType": r[1], "observations": [r[2]]} for r in rows\n'
        "]})\n"
        'return len(made["entities"])',
        lambda value: value is not None,
    ),
    Task(
        "Put a title on six notes",
        ("read a text file", "write a file"),
        [
            step
            for name in NOTES
            for step in (
                _read(name),
                (
                    "filesystem__write_file",
                    {
                        "path": name,
                        "content": f"# {name}\n\nThoughts about {name}.\n" + "More of them, at some length.\n" * 20,
                    },
                ),
            )
        ],
        "for number in range(1, 7):\n"
        '    name = f"note_{number}.md"\n'
        '    text = (await tools.filesystem.read_text_file({"path": name}))["content"]\n'
        '    await tools.filesystem.write_file({"path": name, "content": f"# {name}\\n\\n{text}"})',
        lambda value: value is None,
    ),
    Task(
        "What differs between two configurations",
        ("read a text file",),
        [_read("old.ini"), _read("new.ini")],
        'old = (await tools.filesystem.read_text_file({"path": "old.ini"}))["content"].splitlines()\n'
        'new = (await tools.filesystem.read_text_file({"path": "new.ini"}))["content"].splitlines()\n'
        "return [line for line in old + new if (line in old) != (line in new)]",
        lambda value: value == ["port=80", "port=8080"],
    ),
    Task(
        "The files that four commits change",
        ("show the contents of a commit",),
        [("git__git_show", {"repo_path": REPOSITORY, "revision": revision}) for revision in COMMITS],
        "import asyncio\n"
        f"revisions = {COMMITS}\n"
        "shown = await asyncio.gather(*[\n"
        f'    tools.git.git_show({{"repo_path": "{REPOSITORY}", "revision": r}}) for r in revisions\n'
        "])\n"
        'texts = ["\\n".join(b["text"] for b in s["content"]) for s in shown]\n'
        'return {r: [l[6:] for l in t.splitlines() if l.startswith("+++ ")] for r, t in zip(revisions, texts)}',
        lambda value: len(value) == 4,
    ),
    Task(
        "The total size of twelve logs",
        ("get information about a file, such as its size",),
        [("filesystem__get_file_info", {"path": name}) for name in LOGS],
        "import asyncio\n"
        'names = [f"service_{n:02}.log" for n in range(1, 13)]\n'
        'infos = await asyncio.gather(*[tools.filesystem.get_file_info({"path": n}) for n in names])\n'
        'lines = [l for i in infos for l in i["content"].splitlines() if l.startswith("size:")]\n'
        'return sum(int(l.split(":")[1]) for l in lines)',
        lambda value: value > 10_000,
    ),
]
