"""Runs a command and records every attempt of its processes to reach another machine.

`python -I connection_recorder.py FILE COMMAND ARGUMENT...` ends as the command ends. The kernel stops every system call
that names a destination, also in native code and in child processes, and asks this process about it (seccomp user
notification, Linux 5.5 or newer, no privileges needed). Loopback is allowed. Everything else is refused and written to
FILE, one line for each attempt: a test that fails has sent nothing either.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

# The exit code when the machine cannot record; the reason is on standard error.
CANNOT_RECORD = 77
DNS_PORT = 53
# Name services that ask the network for their callers. Without them names are looked up by the process itself.
NAME_SERVICES = ("/run/systemd/", "/run/nscd/", "/var/run/nscd/", "/run/dbus/", "/var/run/dbus/")
# Families that cannot reach another machine: AF_UNSPEC ends an association, AF_NETLINK speaks with the kernel.
LOCAL_FAMILIES = (socket.AF_UNSPEC, 16)


class _Numbers(NamedTuple):
    """The name of an architecture in filters, and the numbers of its system calls."""

    architecture: int
    seccomp: int
    connect: int
    sendto: int
    sendmsg: int
    sendmmsg: int


NUMBERS = {
    ("linux", "x86_64"): _Numbers(0xC000003E, 317, 42, 44, 46, 307),
    ("linux", "aarch64"): _Numbers(0xC00000B7, 277, 203, 206, 211, 269),
}
IO_URING_SETUP = 425  # on every architecture
MAX_MESSAGES = 1024
MSGHDR_BYTES, MMSGHDR_BYTES = 56, 64
SOCKADDR_BYTES = 128

# From linux/seccomp.h: seccomp_notif and seccomp_notif_resp, and the requests that take them.
NOTIFICATION, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
RECEIVE, RESPOND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
CONTINUE = 1


def main() -> NoReturn:
    record, *command = sys.argv[1:]
    numbers = NUMBERS.get((sys.platform, platform.machine()))
    if numbers is None:
        _give_up("only on Linux, on x86-64 and ARM64")
    try:
        listener = _install_filter(numbers)
    except OSError as error:
        _give_up(str(error))
    # This process has the filter as well, but makes none of the calls that it stops.
    process = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: process.send_signal(received))
    with open(record, "a", encoding="utf-8") as file:  # noqa: PTH123, pathlib is not needed here
        poll, end = select.poll(), os.pidfd_open(process.pid)
        for each in (listener, end):
            poll.register(each, select.POLLIN)
        while end not in (ready := [descriptor for descriptor, _ in poll.poll()]):
            if listener in ready and (line := _answer(listener, numbers)):
                file.write(f"{line}\n")
                file.flush()
    code = process.wait()
    sys.exit(code if code >= 0 else 128 - code)


def _give_up(reason: str) -> NoReturn:
    sys.stderr.write(f"connections cannot be recorded on this machine: {reason}\n")
    sys.exit(CANNOT_RECORD)


def _install_filter(numbers: _Numbers) -> int:
    """Stops the calls of this process and of its children. Returns the descriptor that tells about them. Raises
    OSError."""
    load, equal, end = 0x20, 0x15, 0x06  # instructions of classic BPF: a field, a comparison, the answer
    allow, notify, refuse = 12, 13, 14  # where the answers are
    steps = [
        (load, 4, None, None),
        (equal, numbers.architecture, 2, allow),
        (load, 0, None, None),
        (equal, numbers.connect, notify, 4),
        (equal, numbers.sendmsg, notify, 5),
        (equal, numbers.sendmmsg, notify, 6),
        (equal, IO_URING_SETUP, refuse, 7),  # its calls are not seen by a filter
        (equal, numbers.sendto, 8, allow),
        (load, 48, None, None),  # its destination, in two halves: most calls have none
        (equal, 0, 10, notify),
        (load, 52, None, None),
        (equal, 0, allow, notify),
        (end, 0x7FFF0000, None, None),
        (end, 0x7FC00000, None, None),
        (end, 0x00050000 | errno.ENOSYS, None, None),
    ]
    program = b"".join(
        struct.pack("=HBBI", code, *(0 if to is None else to - at - 1 for to in targets), value)
        for at, (code, value, *targets) in enumerate(steps)
    )
    code_buffer = ctypes.create_string_buffer(program)
    header = struct.pack("@HxxxxxxQ", len(steps), ctypes.addressof(code_buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privileges, set_filter, with_listener = 38, 1, 8
    if libc.prctl(set_no_new_privileges, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "prctl")
    listener: int = libc.syscall(
        ctypes.c_long(numbers.seccomp), ctypes.c_ulong(set_filter), ctypes.c_ulong(with_listener), header
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
    return listener


def _answer(listener: int, numbers: _Numbers) -> str | None:
    """Answers one call. Returns what to record, or None if the call may go on."""
    buffer = bytearray(NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, RECEIVE, buffer)
    except OSError as error:
        if error.errno == errno.ENOENT:  # the process was killed
            return None
        raise
    call, process, _, number, _, _, *arguments = NOTIFICATION.unpack(buffer)
    refused = None
    try:
        for address in _read_destinations(process, numbers, number, arguments):
            code, refused = _judge(address)
            if code:
                break
        else:
            code = 0
    except OSError as error:
        code, refused = errno.ENETUNREACH, f"a destination that cannot be read ({error})"
    try:
        fcntl.ioctl(listener, IS_VALID, struct.pack("=Q", call))
        line = f"{_describe_process(process)}: {refused}" if refused else None
        fcntl.ioctl(listener, RESPOND, bytearray(RESPONSE.pack(call, 0, -code, 0 if code else CONTINUE)))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return None  # a signal has ended the call, which then is made again, or the process
    return line


def _read_destinations(process: int, numbers: _Numbers, number: int, arguments: Sequence[int]) -> Iterator[bytes]:
    """The addresses that a call names. Raises OSError."""
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:  # noqa: PTH123

        def read(place: int, size: int) -> bytes:
            memory.seek(place)
            return memory.read(size)

        if number == numbers.connect:
            named = [(arguments[1], arguments[2])]
        elif number == numbers.sendto:
            named = [(arguments[4], arguments[5])]
        else:
            count = 1 if number == numbers.sendmsg else min(arguments[2], MAX_MESSAGES)
            heads = (read(arguments[1] + i * MMSGHDR_BYTES, MSGHDR_BYTES) for i in range(count))
            named = [struct.unpack_from("=QI", head) for head in heads]
        for place, size in named:
            if place and size:
                yield read(place, min(size & 0xFFFFFFFF, SOCKADDR_BYTES))


def _judge(address: bytes) -> tuple[int, str | None]:
    """The error with which a call ends (0: none), and what to record about it."""
    (family,) = struct.unpack_from("=H", address)
    if family in LOCAL_FAMILIES:
        return 0, None
    if family == socket.AF_UNIX:
        is_name_service = os.fsdecode(address[2:]).startswith(NAME_SERVICES)
        return (errno.ENOENT, None) if is_name_service else (0, None)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return errno.ENETUNREACH, f"a socket of the family {family}"
    (port,) = struct.unpack_from("!H", address, 2)
    host: ipaddress.IPv4Address | ipaddress.IPv6Address
    if family == socket.AF_INET:
        host = ipaddress.IPv4Address(address[4:8])
    else:
        full = ipaddress.IPv6Address(address[8:24])
        host = full.ipv4_mapped or full
    if host.is_loopback and port != DNS_PORT:  # a resolver on this machine asks others
        return 0, None
    return errno.ENETUNREACH, f"{host} port {port}"


def _describe_process(process: int) -> str:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:  # noqa: PTH123
            return " ".join(os.fsdecode(file.read()).replace("\0", " ").split())[:200]
    except OSError:
        return f"process {process}"


if __name__ == "__main__":
    main()
