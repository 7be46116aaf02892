"""Files with secrets, or with keys that prove identities: their permissions and their content."""

from pathlib import Path

# Permission bits that a file with secrets must not have: write by the group, and everything by others.
_FORBIDDEN_MODE = 0o027
# Permission bits that let group or others write.
_WRITE_BY_OTHERS = 0o022


def check_mode(file: Path) -> None:
    """Raise ValueError if others can read the file, or the group can change it; OSError if it cannot be examined.

    The group may read it: that is the mode of a Kubernetes secret with defaultMode 0440, or of a service's group.
    """
    mode = file.stat().st_mode & 0o777
    if mode & _FORBIDDEN_MODE:
        raise ValueError(
            f"{file}: the mode {mode:o} lets others read the secrets or the group change them: chmod 600 {file}"
        )


def check_writers(file: Path) -> None:
    """Raise ValueError if group or others can change the file; OSError if it cannot be examined.

    For public keys: with a key of their own in the file, others could sign as any user.
    """
    mode = file.stat().st_mode & 0o777
    if mode & _WRITE_BY_OTHERS:
        raise ValueError(f"{file}: the mode {mode:o} lets others change it: chmod go-w {file}")


def read_secret(text: str | None, file: Path | None, key: str) -> str:
    """Return a secret: the content of a file without blanks at its ends, else the text. Raises ValueError.

    key: the setting with the file's path.
    """
    if file is None:
        assert text is not None
        return text
    try:
        secret = file.read_text().strip()
        if not secret:
            raise ValueError(f"{key} {file} is empty")
        try:
            check_mode(file)
        except ValueError as error:
            raise ValueError(f"{key} {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"{key} {file}: {reason}") from None
    return secret
