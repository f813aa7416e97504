"""Opens the zip archives of DOCX and EPUB files safely: sizes are checked before anything is unpacked (zip bombs), XML
entities are refused (billion laughs), and nothing is written to disk."""

from __future__ import annotations

import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath
from xml.etree.ElementTree import Element, TreeBuilder  # only the tree; parsing is done by our own expat parser
from xml.parsers import expat  # entities are refused, see `_create_parser`

from toolscript.domain.errors import Invalid

MAX_UNPACKED_BYTES = 500 * 10**6
MAX_MEMBERS = 20_000
MAX_RATIO = 200
MAX_TOTAL_RATIO = 150
_RATIO_CHECK_BYTES = 10 * 10**6
_BOMB = ": it looks like a zip bomb and is not read."
_BAD_ENCODING = (ValueError, LookupError)  # raised by expat for an unknown encoding
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError, RuntimeError, OSError, EOFError)


def open_archive(data: bytes) -> zipfile.ZipFile:
    """Opens an archive. Raises Invalid if it is damaged or unsafe to unpack."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = archive.infolist()
    except _BROKEN as error:
        raise Invalid("The file is damaged: the archive cannot be opened.") from error
    if len(members) > MAX_MEMBERS:
        raise Invalid(f"The file holds {len(members):,} files; the limit is {MAX_MEMBERS:,}.")
    declared = sum(member.file_size for member in members)
    if declared > MAX_UNPACKED_BYTES:
        raise Invalid(
            f"The file would unpack to {declared / 10**6:,.0f} MB; the limit is {MAX_UNPACKED_BYTES // 10**6} MB."
        )
    if declared > _RATIO_CHECK_BYTES and declared > MAX_TOTAL_RATIO * len(data):
        raise Invalid(f"The file unpacks to more than {MAX_TOTAL_RATIO} times its size{_BOMB}")
    for member in members:
        _check_member(member)
    return archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Unpacks one member. Raises Invalid when it is missing, damaged, or larger than declared."""
    try:
        member = archive.getinfo(name)
        with archive.open(member) as opened:
            data = opened.read(member.file_size + 1)
    except KeyError as error:
        raise Invalid(f"The file is damaged: {_quote_name(name)} is missing.") from error
    except _BROKEN as error:
        raise Invalid(f"The file is damaged: {_quote_name(name)} cannot be unpacked.") from error
    if len(data) > member.file_size:
        raise Invalid(f"The file is unsafe: {_quote_name(name)} is larger than the archive declares.")
    return data


def parse_xml(data: bytes, name: str) -> Element:
    """Parses XML into elements without namespaces. Raises Invalid for bad XML and for declared entities."""
    builder = TreeBuilder()
    walk_xml(data, name, builder.start, builder.end, builder.data)
    return builder.close()


def walk_xml(
    data: bytes,
    name: str,
    begin: Callable[[str, dict[str, str]], object],
    end: Callable[[str], object],
    add_text: Callable[[str], object],
) -> None:
    """Parses XML, element by element without namespaces, for files with a large tree. Raises as `parse_xml`."""
    parser = _create_parser(name)
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: begin(
        _local_name(tag), {_local_name(k): v for k, v in attributes.items()}
    )
    parser.EndElementHandler = lambda tag: end(_local_name(tag))
    parser.CharacterDataHandler = add_text
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, AssertionError, *_BAD_ENCODING) as error:
        raise Invalid(f"The file is damaged: {_quote_name(name)} is not valid XML.") from error


def refuse_entities(archive: zipfile.ZipFile) -> None:
    """Raises Invalid when a member declares XML entities; for libraries that bring their own XML parser. Entities are
    declared before the first element, so each member is parsed up to there only."""
    for name in archive.namelist():
        parser = _create_parser(name)
        parser.StartElementHandler = _stop
        try:
            parser.Parse(read_member(archive, name), True)
        except (_FirstElement, expat.ExpatError):
            continue
        except _BAD_ENCODING as error:
            raise Invalid(f"The file is damaged: {_quote_name(name)} is not valid XML.") from error


class _FirstElement(Exception):
    """Stops the parser at the first element."""


def _stop(*_: object) -> None:
    raise _FirstElement


def _create_parser(name: str) -> expat.XMLParserType:
    """Creates a parser that refuses entities."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def refuse(*_: object) -> None:
        raise Invalid(f"The file declares XML entities in {_quote_name(name)}, which may be an attack: it is not read.")

    parser.EntityDeclHandler = refuse
    return parser


def _check_member(member: zipfile.ZipInfo) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise Invalid(f"The file holds an unsafe path, {_quote_name(member.filename)}: it is not read.")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Invalid(f"The file holds a symbolic link, {_quote_name(member.filename)}: it is not read.")
    if member.flag_bits & 1:
        raise Invalid("The file is protected by a password: save a copy without one.")
    if member.file_size > _RATIO_CHECK_BYTES and member.file_size > MAX_RATIO * max(1, member.compress_size):
        raise Invalid(
            f"The file holds {_quote_name(member.filename)}, which unpacks to over {MAX_RATIO} times its size{_BOMB}"
        )


def _quote_name(name: str) -> str:
    return ascii(name[:80])


def _local_name(name: str) -> str:
    return name.rpartition(" ")[2]
