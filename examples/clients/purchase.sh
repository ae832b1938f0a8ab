#!/bin/sh
# Buys one unit and waits for its order: SLUICE_URL, ACTIVITY, REQUEST_ID and, needed, TOKEN.
set -eu

url=${SLUICE_URL:-http://127.0.0.1:8080}
activity=${ACTIVITY:-30001}
# One id for each click, made before the first try: every repeat is the same purchase.
request_id=${REQUEST_ID:-$(cat /proc/sys/kernel/random/uuid)}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# curl repeats after 429, 503 and a refused connection, and waits as long as Retry-After says. It
# ends with 22 where the answer is another refusal, whose code is in the body.
call() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused --max-time 40 -o "$answer" \
        -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' "$@" ||
        { status=$?; cat "$answer" >&2; echo >&2; exit "$status"; }
}
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$answer"; }

call "$url/api/flashsales/$activity/purchase" -d "{\"client_request_id\":\"$request_id\"}"
purchase=$(field pre_deduction_id)
while [ "$(field status)" = pending_order ]; do
    call "$url/api/flashsales/purchases/$purchase?wait=5s"
done
echo "$(field order_no) $(field status)"
