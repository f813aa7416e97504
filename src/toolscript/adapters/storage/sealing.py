"""Encrypts what the store keeps secret, with a key of the installation (AES-256-GCM)."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from toolscript.adapters.storage.private_files import make_private_folder, open_private
from toolscript.domain.errors import Invalid, Unavailable

MIN_CHARACTERS = 32
_NONCE_BYTES = 12


class InstallationKey:
    """The key of a setting, or of a private file. The first encryption creates the file."""

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        """Raises Invalid for a text that is too short."""
        if text is not None and len(text) < MIN_CHARACTERS:
            raise Invalid(
                f"TOOLSCRIPT_LOGIN_KEY is too short: give at least {MIN_CHARACTERS} random characters",
                details={"field": "TOOLSCRIPT_LOGIN_KEY", "allowed": f"at least {MIN_CHARACTERS} characters"},
            )
        self._text = text
        self._file = file

    def seal(self, content: bytes, about: bytes) -> bytes:
        """Encrypts the content; only `open` with the same `about` decrypts it. Raises Unavailable."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._derive(self._read() or self._create())).encrypt(nonce, content, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """Decrypts. Raises Unavailable when another key encrypted it, or when it was about something else."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        text = self._read() or secrets.token_hex()  # without a key nothing can be decrypted
        try:
            return AESGCM(self._derive(text)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (InvalidTag, ValueError) as error:
            raise Unavailable(
                "its login was encrypted with another key: give all gateways on this store the same "
                "TOOLSCRIPT_LOGIN_KEY, or log in again"
            ) from error

    def _read(self) -> str | None:
        if self._text is not None or self._file is None:
            return self._text
        try:
            return self._file.read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Unavailable(f"the key of logins cannot be read: {self._file}: {error}") from error

    def _create(self) -> str:
        """Creates the file. If another process has created it meanwhile, its key is used."""
        if self._file is None:
            raise Unavailable("there is no key for logins: set TOOLSCRIPT_LOGIN_KEY")
        part = self._file.with_name(f".{self._file.name}.{secrets.token_hex(8)}")
        try:
            make_private_folder(self._file.parent, follow_link=True)
            with open(part, "w", encoding="ascii", opener=open_private) as opened:
                opened.write(secrets.token_urlsafe(32))
            with suppress(FileExistsError):
                os.link(part, self._file)
        except OSError as error:
            raise Unavailable(f"the key of logins cannot be written: {self._file}: {error}") from error
        finally:
            part.unlink(missing_ok=True)
        if (text := self._read()) is None:
            raise Unavailable(f"the key of logins cannot be read: {self._file} is empty")
        return text

    @staticmethod
    def _derive(text: str) -> bytes:
        return hashlib.sha256(b"toolscript logins\0" + text.encode()).digest()
