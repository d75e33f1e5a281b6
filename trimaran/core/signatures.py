"""Ed25519 signatures of digest lists, for repositories that travel: who made this version, and is it all unchanged?

The keys are PEM files, as `openssl genpkey -algorithm ed25519` writes them.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

from trimaran.core.digests import DIGESTS_FILE, SIGNATURE_FILE, Digests, damages_of
from trimaran.core.errors import IntegrityError, UnavailableError, UsageError
from trimaran.core.store import write_atomically

_HINT = "`trimaran repository seal --key` signs; get the repository again from whom you trust."


def sign_digests(folder: Path, key: Path) -> None:
    """Signs the digest list of a version with a private key."""
    write_atomically(folder / SIGNATURE_FILE, signature_of(folder, key))


def signature_of(folder: Path, key: Path) -> str:
    """The text of the signature file."""
    signature = _key(key, "private").sign((folder / DIGESTS_FILE).read_bytes())
    return base64.b64encode(signature).decode() + "\n"


def require_signed(folder: Path, key: Path) -> None:
    """Raises IntegrityError unless the holder of the key signed exactly this version of this model.

    Every file is read. Compiled Python beside the stage is removed: Python would run it in place of the source.
    """
    public = _key(key, "public")
    from cryptography.exceptions import InvalidSignature

    try:
        signature = base64.b64decode((folder / SIGNATURE_FILE).read_bytes().strip(), validate=True)
        public.verify(signature, (folder / DIGESTS_FILE).read_bytes())
    except (OSError, ValueError, InvalidSignature) as error:
        reason = "is not signed" if isinstance(error, OSError) else "is not signed with this key"
        raise IntegrityError(f"{folder} {reason} ({key}).", hint=_HINT, path=str(folder)) from error
    digests = Digests.read(folder / DIGESTS_FILE)
    if (digests.model, str(digests.version)) != (folder.parent.name, folder.name):
        raise IntegrityError(
            f"{folder} holds what was signed as version {digests.version} of {digests.model}.",
            hint=_HINT,
            path=str(folder),
        )
    for compiled in folder.rglob("__pycache__"):
        shutil.rmtree(compiled, ignore_errors=True)
    damages = [f"{damage.path} {damage.sentence}" for damage in damages_of(folder, remembered=False)]
    damages += [f"{path} cannot be removed." for path in folder.rglob("__pycache__")]
    damages += [f"{path} is a link." for path in (folder.parent, folder, *folder.rglob("*")) if path.is_symlink()]
    if damages:
        raise IntegrityError(f"Refused, damaged: {'; '.join(damages)}", hint=_HINT, path=str(folder))


def _key(path: Path, kind: str) -> Any:
    """The key of a PEM file. Raises UsageError for a file that holds none of this kind."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError as error:
        raise UnavailableError(
            "Signatures need the package cryptography.", hint="pip install 'trimaran[signing]' -c constraints.txt"
        ) from error
    key: Any = None
    try:
        text = path.read_bytes()
        key = load_pem_private_key(text, None) if kind == "private" else load_pem_public_key(text)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"{path} is not a {kind} key.",
            hint="`openssl genpkey -algorithm ed25519` makes one, `pkey -pubout` its public half.",
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        raise UsageError(f"{path} is not an Ed25519 key.", hint="`openssl genpkey -algorithm ed25519` makes one.")
    return key
