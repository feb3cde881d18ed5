"""What a streamed chunk costs its reader, in calls of Python functions: a figure that no busy machine changes."""

from __future__ import annotations

from tests.scripts import run

MOST_CALLS = 12  # 10 and 9; three times as many where a token is split as if a marker might be in it

SCRIPT = """
import asyncio, sys, time
from localai_shim import AsyncLocalOpenAI, LocalOpenAI

QUESTION = [{"role": "user", "content": "Tell me a story"}]
ASK = dict(model="m", messages=QUESTION, max_tokens=60, temperature=0, stream=True)
CHUNKS = 40
count = 0

def entered(frame, event, argument):
    global count
    count += event == "call"

def all_is_there(client):
    while client.stats().running:
        time.sleep(0.01)

def take(client):
    assert len(list(client.chat.completions.create(**ASK))) > CHUNKS + 3  # what is made for the first answer is there
    chunks = iter(client.chat.completions.create(**ASK))
    [next(chunks) for _ in range(3)]
    all_is_there(client)
    sys.setprofile(entered)
    for _ in range(CHUNKS):
        next(chunks)
    sys.setprofile(None)
    print(count / CHUNKS)

async def take_async():
    async with AsyncLocalOpenAI() as client:
        chunks = aiter(await client.chat.completions.create(**ASK))
        [await anext(chunks) for _ in range(3)]
        all_is_there(client)
        await asyncio.sleep(0)  # the loop learns what has come
        sys.setprofile(entered)
        for _ in range(CHUNKS):
            await anext(chunks)
        sys.setprofile(None)
        print(count / CHUNKS)

with LocalOpenAI() as client:  # both share its engine
    take(client)
    count = 0
    asyncio.run(take_async())
"""


def test_a_chunk_that_is_there_takes_few_calls() -> None:
    """In a process of its own, as tests look at every chunk."""
    done = run(SCRIPT, warm="mlx")
    assert done.returncode == 0, done.stderr
    for calls in done.stdout.split():
        assert 5 < float(calls) <= MOST_CALLS, done.stdout
