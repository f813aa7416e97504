"""The zip files that DOCX and EPUB are: looked through before anything is unpacked, because an archive may promise
little and hold gigabytes; and the XML inside, without entities. Nothing is ever written to a disk."""

from __future__ import annotations

import io
import lzma
import stat
import zipfile
import zlib
from pathlib import PurePosixPath
from xml.etree.ElementTree import Element, TreeBuilder  # only the tree: expat is ours, and knows no entities
from xml.parsers import expat  # see `xml_tree`

from toolscript.domain.errors import Invalid

MOST_UNPACKED = 500 * 10**6
MOST_MEMBERS = 20_000
MOST_RATIO = 200
MOST_RATIO_TOGETHER = 150
_RATIO_MATTERS = 10 * 10**6
_TRAP = ": it looks like a trap and is not read."
_UNREADABLE = (ValueError, LookupError)  # what expat says of an encoding that it does not know
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError, RuntimeError, OSError, EOFError)


def open_archive(data: bytes) -> zipfile.ZipFile:
    """The archive, when it can be unpacked without harm. Raises Invalid otherwise."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = archive.infolist()
    except _BROKEN as error:
        raise Invalid("The file is broken: the archive that it is cannot be opened.") from error
    if len(members) > MOST_MEMBERS:
        raise Invalid(f"The file holds {len(members):,} files; at most {MOST_MEMBERS:,} are unpacked.")
    declared = sum(member.file_size for member in members)
    if declared > MOST_UNPACKED:
        most = MOST_UNPACKED / 10**6
        raise Invalid(f"The file would unpack to {declared / 10**6:,.0f} MB; at most {most:,.0f} MB are unpacked.")
    if declared > _RATIO_MATTERS and declared > MOST_RATIO_TOGETHER * len(data):
        raise Invalid(f"The file unpacks to more than {MOST_RATIO_TOGETHER} times its size{_TRAP}")
    for member in members:
        _check(member)
    return archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """One file of the archive. Raises Invalid when it is missing, broken, or not what the archive says of it."""
    try:
        member = archive.getinfo(name)
        with archive.open(member) as opened:
            data = opened.read(member.file_size + 1)
    except KeyError as error:
        raise Invalid(f"The file is broken: {_shown(name)} is missing in it.") from error
    except _BROKEN as error:
        raise Invalid(f"The file is broken: {_shown(name)} in it cannot be unpacked.") from error
    if len(data) > member.file_size:
        raise Invalid(f"The file lies about itself: {_shown(name)} in it is larger than the archive says.")
    return data


def xml_tree(data: bytes, name: str) -> Element:
    """The elements of an XML file, by their bare names; a file that declares entities is refused."""
    builder = TreeBuilder()  # fed by hand
    parser = _parser(name)
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, said: builder.start(_local(tag), {_local(k): v for k, v in said.items()})
    parser.EndElementHandler = lambda tag: builder.end(_local(tag))
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
        return builder.close()
    except (expat.ExpatError, AssertionError, *_UNREADABLE) as error:
        raise Invalid(f"The file is broken: {_shown(name)} in it is not XML.") from error


def refuse_entities(archive: zipfile.ZipFile) -> None:
    """For a reader with an XML parser of its own: raises Invalid when any file of the archive declares entities. They
    come before the first element, so no more of a file than that is looked at, and nothing of one that is not XML."""
    for name in archive.namelist():
        parser = _parser(name)
        parser.StartElementHandler = _stop
        try:
            parser.Parse(read_member(archive, name), True)
        except (_FirstElement, expat.ExpatError):
            continue
        except _UNREADABLE as error:
            raise Invalid(f"The file is broken: {_shown(name)} in it is not XML.") from error


class _FirstElement(Exception):
    """The declarations of an XML file are over."""


def _stop(*_: object) -> None:
    raise _FirstElement


def _parser(name: str) -> expat.XMLParserType:
    """A parser for which entities are a reason to stop."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def refuse(*_: object) -> None:
        raise Invalid(f"The file declares XML entities in {_shown(name)}, which may be a trap: it is not read.")

    parser.EntityDeclHandler = refuse
    return parser


def _check(member: zipfile.ZipInfo) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise Invalid(f"The file holds a path that leads out of it, {_shown(member.filename)}: it is not read.")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Invalid(f"The file holds a link, {_shown(member.filename)}: it is not read.")
    if member.flag_bits & 1:
        raise Invalid("The file is protected by a password: save a copy without one.")
    if member.file_size > _RATIO_MATTERS and member.file_size > MOST_RATIO * max(1, member.compress_size):
        raise Invalid(
            f"The file holds {_shown(member.filename)}, which unpacks to more than {MOST_RATIO} times its size{_TRAP}"
        )


def _shown(name: str) -> str:
    return ascii(name[:80])


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
