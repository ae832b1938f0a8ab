#!/usr/bin/env python3
"""Buys one unit and waits for its order: SLUICE_URL, ACTIVITY, REQUEST_ID and, needed, TOKEN."""

import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ.get("SLUICE_URL", "http://127.0.0.1:8080")
ACTIVITY = os.environ.get("ACTIVITY", "30001")
TRIES = 6


def call(path, body=None):
    """The answer, after as many tries as it takes: 429 and 503 say when to come back."""
    data = None if body is None else json.dumps(body).encode()
    headers = {
        "Authorization": f"Bearer {os.environ['TOKEN']}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(URL + path, data, headers)
    for tries_left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503) or not tries_left:
                sys.exit(f"{error.code}: {json.load(error)['code']}")
            wait = int(error.headers.get("Retry-After", "1"))
        except OSError as error:
            # Refused, broken off, timed out: whatever became of it, the repeat will tell.
            if not tries_left:
                sys.exit(f"no answer: {error}")
            wait = 1
        # Not all in the same moment.
        time.sleep(wait + random.random())


def main():
    # One id for each click, made before the first try: every repeat is the same purchase.
    request_id = os.environ.get("REQUEST_ID") or str(uuid.uuid4())
    path = f"/api/flashsales/{ACTIVITY}/purchase"
    purchase = call(path, {"client_request_id": request_id})
    while purchase["status"] == "pending_order":
        purchase = call(f"/api/flashsales/purchases/{purchase['pre_deduction_id']}?wait=5s")
    print(purchase["order_no"], purchase["status"])


main()
