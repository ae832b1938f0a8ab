"""Who calls, and about what: what no document can tell whoever tries it.

KNOWN, as JSON: the caller's id and role, and things that are there, by the names that paths and
bodies have for them. TOKEN_SECRET and PAYMENT_SECRET: what tokens and callbacks are signed with.
"""

import base64
import hashlib
import hmac
import json
import os
import time
import uuid

import requests.auth
import schemathesis

KNOWN = json.loads(os.environ["KNOWN"])
TOKEN_SECRET = os.environ["TOKEN_SECRET"].encode()
PAYMENT_SECRET = os.environ["PAYMENT_SECRET"].encode()

CALLBACK = "/api/payments/callback/{channel}"

# What an id names, by the segment in front of it.
NAMED_BY = {
    "flashsales": "activity_id",
    "purchases": "pre_deduction_id",
    "reservations": "pre_deduction_id",
    "dead-letters": "pre_deduction_id",
    "users": "user_id",
}


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token():
    now = int(time.time())
    claims = {
        "sub": str(KNOWN["caller"]),
        "role": KNOWN["role"],
        "iat": now,
        "exp": now + 600,
        # One of its own for each call: a logout takes no other call's token along.
        "jti": uuid.uuid4().hex,
    }
    parts = [base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, claims)]
    signed = b".".join(parts)
    mac = hmac.digest(TOKEN_SECRET, signed, hashlib.sha256)
    return b".".join([signed, base64url(mac)]).decode()


class Signed(requests.auth.AuthBase):
    """A provider of payments."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        at = str(int(time.time()))
        mac = hmac.new(PAYMENT_SECRET, at.encode() + b"." + body, hashlib.sha256)
        request.headers["X-Timestamp"] = at
        request.headers["X-Signature"] = mac.hexdigest()
        return request


if KNOWN["role"] != "nobody":
    schemathesis.auth.set_from_requests(Signed()).apply_to(path=CALLBACK)

    @schemathesis.auth(refresh_interval=None).skip_for(path=CALLBACK)
    class Token:
        def get(self, case, ctx):
            return token()

        def set(self, case, data, ctx):
            case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    """About every second thing that a path names is there."""
    for name, value in (path_parameters or {}).items():
        if name == "id" and isinstance(value, int) and value % 2:
            segments = ctx.operation.path.split("/")
            path_parameters[name] = KNOWN[NAMED_BY[segments[segments.index("{id}") - 1]]]
        elif isinstance(value, str) and len(value) % 2 and name in KNOWN:
            path_parameters[name] = KNOWN[name]
    return path_parameters


@schemathesis.hook
def map_body(ctx, body):
    """And so is about every second thing that a body names."""
    if isinstance(body, dict):
        for name in ("order_no", "payment_no", "channel"):
            if isinstance(body.get(name), str) and len(body[name]) % 2:
                body[name] = KNOWN[name]
    return body


@schemathesis.hook
def map_query(ctx, query):
    """Nobody waits for long."""
    wait = (query or {}).get("wait")
    if isinstance(wait, str) and wait[:-1].isdigit():
        query["wait"] = "20ms"
    return query
