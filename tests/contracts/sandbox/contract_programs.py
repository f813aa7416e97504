"""What the contract of sandboxes needs of each language: the same programs, written in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContractPrograms:
    """Programs that do what their names say. `call_host("double", {"number": n})` gives the double of a number,
    `call_host("wait", {})` waits until the run ends, `call_host("fail", {})` raises NotFound inside, and
    `call_host("meet", {"of": n})` returns when so many of these calls are running,
    and `call_host("echo", {"value": v})` returns its value."""

    return_record: str
    """{"sum": 3, "names": ["a", "b"], "none": null}"""
    return_nothing: str
    print_lines: str
    """Prints `first` and `second`, a line each, and returns 1."""
    double: str
    """The double of 21, by the host."""
    meet_ten: str
    """Ten calls of `meet` together, and the number of their results."""
    catch_failure: str
    """The text of the error of `fail`."""
    fail_uncaught: str
    """Calls `fail` in line 2."""
    raise_in_line_3: str
    """Raises an error with the text `broken` in line 3."""
    raise_in_line_2: str
    """Two lines, of which the second raises an error."""
    sleep: str
    """Sleeps for half a second."""
    wait: str
    swallow_and_wait: str
    """Calls `stop`, catches whatever that raises, and then waits."""
    loop: str
    fill_memory: str
    return_much: str
    """A value of more than a megabyte of JSON."""
    echo_many: str
    """Calls `echo` with 20,000 records `{"number": n, "text": "ü…"}` of its input `mark`, and returns its result."""
    return_shared: str
    """A few lists in each other that are billions of elements when they are written."""
    print_forever: str
    bound: str
    """Returns `greet("you") + suffix`, with a function of the bindings and an input."""
    bindings: str
    """Defines `greet(name)`: "hello " + name."""
    types: str
    """Declares `greet` (a string to a string) and `suffix` (a string)."""
    wrong_type: str
    """Gives `greet` a number in line 2."""
    wrong_syntax: str
    """Cannot be parsed in line 2."""
    set_global: str
    """Sets a global variable `left`, and returns 1."""
    read_global: str
    """Returns the global variable `left`, which does not exist."""
    refuse_arguments: str
    """Calls the host twice with what is no JSON object, and catches the errors; returns the text of the last."""
    break_host: str
    """Calls `break`, whose host raises a ValueError, and catches whatever that raises."""
