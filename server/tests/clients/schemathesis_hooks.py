"""Who calls, and with which ids: what schemathesis cannot guess from a document."""

import base64
import hashlib
import hmac
import json
import os
import time
import uuid

import schemathesis

KNOWN = json.loads(os.environ["KNOWN"])
SECRET = os.environ["TOKEN_SECRET"].encode()

# By the segment in front of it, what an id may name.
NAMED_BY = {"flashsales": "activity", "purchases": "purchase", "reservations": "purchase",
            "dead-letters": "purchase", "users": "user"}


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token(user, role):
    now = int(time.time())
    # An id of its own each: a call that revokes its token takes none from the others.
    claims = {"sub": str(user), "role": role, "iat": now, "exp": now + 600, "jti": uuid.uuid4().hex}
    parts = [base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, claims)]
    signed = b".".join(parts)
    return b".".join([signed, base64url(hmac.digest(SECRET, signed, hashlib.sha256))]).decode()


if KNOWN["role"] != "nobody":

    @schemathesis.auth(refresh_interval=None)
    class Token:
        def get(self, case, ctx):
            return token(KNOWN["caller"], KNOWN["role"])

        def set(self, case, data, ctx):
            case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    """Every second id is one that is there."""
    for name, value in (path_parameters or {}).items():
        if name == "id":
            if isinstance(value, int) and value % 2:
                segments = ctx.operation.path.split("/")
                path_parameters[name] = KNOWN[NAMED_BY[segments[segments.index("{id}") - 1]]]
        elif isinstance(value, str) and len(value) % 2 and name in KNOWN:
            path_parameters[name] = KNOWN[name]
    return path_parameters


@schemathesis.hook
def map_query(ctx, query):
    """Nobody waits for long."""
    wait = (query or {}).get("wait")
    if isinstance(wait, str) and wait[:-1].isdigit():
        query["wait"] = "20ms"
    return query
