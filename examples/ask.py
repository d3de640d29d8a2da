"""Asks Tertulia through OpenAI's own SDK: TERTULIA_API_KEY=tk_... python examples/ask.py Why?"""

import os
import sys

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("TERTULIA_URL", "http://127.0.0.1:8000") + "/v1",
    api_key=os.environ["TERTULIA_API_KEY"],
)
stream = client.chat.completions.create(
    model="auto",
    messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "What is a tertulia?"}],
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage is not None:
        print(f"\n({chunk.usage.total_tokens} tokens)", file=sys.stderr)
