"""Bearer tokens (JWT) of a user, and the file with the keys that verify them."""

import json
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

NOW = 1_800_000_000.0
KEY = ECKey.generate_key("P-256", {"kid": "1", "alg": "ES256"})


def token(key: Any = KEY, algorithm: str = "ES256", **claims: object) -> str:
    content = {"sub": "carol", "exp": int(NOW) + 60, "groups": ["readers"], **claims}
    return jwt.encode(
        {"alg": algorithm, "kid": "1"},
        {name: value for name, value in content.items() if value is not None},
        key,
        algorithms=[algorithm],
    )


def publish(folder: Path, key: Any = KEY) -> Path:
    file = folder / "jwks.json"
    file.touch(0o644)
    file.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    return file
