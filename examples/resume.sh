#!/usr/bin/env bash
# Asks, hangs up in the middle of the answer, and goes on where it was: nothing is lost or repeated.
# Usage: TERTULIA_API_KEY=tk_... examples/resume.sh "A question"
set -euo pipefail
url=${TERTULIA_URL:-http://127.0.0.1:8000}
question=${1:-Tell me a short story about the sea.}

call() { # as a file, so that the key is not in the list of processes
  curl --silent --show-error --no-buffer \
    --header @<(printf 'Authorization: Bearer %s' "${TERTULIA_API_KEY:?set it to an API key}") "$@"
}
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

conversation=$(call --request POST "$url/v1/conversations" | field id)
body=$(python3 -c 'import json, sys; print(json.dumps({"content": sys.argv[1]}))' "$question")
reply=$(call "$url/v1/conversations/$conversation/messages" \
  --header 'Content-Type: application/json' --header "Idempotency-Key: m_$RANDOM$RANDOM$RANDOM" \
  --data "$body" | field streamUrl)

echo "== the first words, then the connection is cut"
heard=$(call "$url$reply" 2>/dev/null | sed '/^event: delta/{n;n;q}' || true)
echo "$heard"

last=$(sed -n 's/^id: //p' <<<"$heard" | tail -n 1)
echo "== and the rest, after event $last"
call --header "Last-Event-ID: $last" "$url$reply"
