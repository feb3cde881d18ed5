"""Parts of programs that gevent has patched, which test_gevent.py runs."""

from __future__ import annotations

PATCH = "from gevent import monkey; monkey.patch_all()\n"
IMPORT = (
    "import localai_shim, localai_shim.client.local, localai_shim.engine.engine, localai_shim.runtime.client_state\n"
)

WATCH = """
# A greenlet that waited while it holds a lock of the system would stop its thread with the next one that wants it.
import collections, traceback
import greenlet
from localai_shim.threads import greenlets, system

held, waited = collections.Counter(), []

def watched(make):
    class Watched:
        def __init__(self):
            self.lock = make()
        def acquire(self, *args, **options):
            taken = self.lock.acquire(*args, **options)
            held[system.get_ident()] += taken
            return taken
        def release(self):
            self.lock.release()
            held[system.get_ident()] -= 1
        def __enter__(self):
            return self.acquire()
        def __exit__(self, *_):
            self.release()
        def __getattr__(self, name):
            return getattr(self.lock, name)
    return Watched

def switched(event, args):
    if held[system.get_ident()]:
        waited.append("".join(traceback.format_stack(limit=12)))

turn_lock = system.Lock
def turn(self):
    self._lock, self._waiters = turn_lock(), greenlets.Waiters()

system.HeldLock.__init__ = turn  # it is there to be held
system.Lock, system.RLock = watched(system.Lock), watched(system.RLock)
greenlet.settrace(switched)
"""

PRELUDE = """
import gc, json, os, sys, threading, time
import gevent, openai
from localai_shim import AsyncLocalOpenAI, LocalOpenAI

ask = dict(model="any", messages=[{"role": "user", "content": "Go on"}], temperature=0)
some = dict(max_tokens=60, extra_body={"ignore_eos": True})
more = dict(max_tokens=600, extra_body={"ignore_eos": True})  # of a whole answer, which is read in pieces
long = dict(max_tokens=150_000, extra_body={"ignore_eos": True})

def eventually(is_so):
    with gevent.Timeout(60, False):
        while not is_so():
            gevent.sleep(0.005)
        return True
    return False

beats = [0]
def beat():
    while True:
        beats[0] += 1
        gevent.sleep(0.005)
gevent.spawn(beat)

client = LocalOpenAI(MODEL, keep_alive=0)
create = client.chat.completions.create

def is_idle():
    return eventually(lambda: client.stats().running == client.stats().waiting == 0)

def when_it_runs(work):
    assert is_idle()
    greenlet = gevent.spawn(work)
    assert eventually(lambda: client.stats().running == 1)
    return greenlet

def read(stream):
    return sum(bool(chunk.choices and chunk.choices[0].delta.content is not None) for chunk in stream)
"""

SCENARIOS = '''
def streams():
    steps = client.stats().steps
    before = beats[0]
    reading = [gevent.spawn(lambda: list(create(**ask, **some, stream=True))[-1].choices[0].finish_reason)
               for _ in range(6)]
    gevent.joinall(reading, timeout=60)
    shared = client.stats().steps - steps < 3 * some["max_tokens"]
    return [each.value for each in reading], shared, beats[0] - before > 5

def whole():
    before = beats[0]
    said = [create(**ask, **length).usage.completion_tokens for length in (some, more)]
    return said, beats[0] - before > 5

def neighbors():
    """Those of a batch that are killed take no others with them."""
    def whole():
        return create(**ask, **more).choices[0].finish_reason
    def streamed():
        return [chunk for chunk in create(**ask, **more, stream=True) if chunk.choices][-1].choices[0].finish_reason
    assert is_idle()
    asking = [gevent.spawn(work) for work in (whole, streamed) * 2]
    gone = [gevent.spawn(lambda: create(**ask, **long)), gevent.spawn(lambda: read(create(**ask, **long, stream=True)))]
    together = eventually(lambda: client.stats().running == 6)
    gevent.killall(gone)
    gevent.joinall(asking, timeout=60)
    return together, [each.value for each in asking], is_idle()

def asynchronous():
    """One greenlet of a thread may have an event loop."""
    import asyncio
    async def main():
        async with AsyncLocalOpenAI(MODEL, keep_alive=0, max_retries=0) as other:
            create = other.chat.completions.create
            whole = await asyncio.gather(*(create(**ask, **more) for _ in range(3)))
            last = [chunk async for chunk in await create(**ask, **some, stream=True)][-1]
            timers = sum(not timer.cancelled() for timer in asyncio.get_running_loop()._scheduled)
            try:
                await other.with_options(timeout=0.3).chat.completions.create(**ask, **long)
            except openai.APITimeoutError:
                return [each.usage.completion_tokens for each in whole], last.choices[0].finish_reason, timers
    before = beats[0]
    return *gevent.spawn(asyncio.run, main()).get(timeout=60), beats[0] - before > 5, is_idle()

def killed():
    asking = when_it_runs(lambda: create(**ask, **long))
    asking.kill()
    reading = when_it_runs(lambda: read(create(**ask, **long, stream=True)))
    reading.kill()
    return asking.dead, reading.dead, is_idle()

def timed_out():
    outcomes = []
    for stream in (False, True):
        try:
            with gevent.Timeout(0.3):
                answer = create(**ask, **long, stream=stream)
                read(answer)
        except gevent.Timeout:
            outcomes.append(is_idle())
    try:
        client.with_options(timeout=0.3, max_retries=0).chat.completions.create(**ask, **long)
    except openai.APITimeoutError:
        outcomes.append(is_idle())
    return outcomes

def dropped():
    stream = create(**ask, **long, stream=True)
    next(stream)
    del stream
    gc.collect()
    return is_idle()

def closed_by_another():
    stream = create(**ask, **long, stream=True)
    def until_closed():
        try:
            read(stream)
        except openai.APIConnectionError:
            pass
        return "ended"
    next(stream)
    reading = gevent.spawn(until_closed)
    gevent.sleep(0)
    stream.close()
    return reading.get(timeout=60), is_idle()

def shared():
    events = client._client.runtime and create(**ask, **some, stream=True).response.local_events
    reading = [gevent.spawn(lambda: sum(bool(each.choices) for each in events)) for _ in range(3)]
    gevent.joinall(reading, timeout=60)
    alone = sum(bool(each.choices) for each in create(**ask, **some, stream=True).response.local_events)
    return sum(each.value for each in reading) == alone

def threadpool():
    pool = gevent.get_hub().threadpool
    stream = create(**ask, **some, stream=True)
    next(stream)
    asked = pool.spawn(lambda: create(**ask, max_tokens=7).usage.completion_tokens)
    return asked.get(timeout=60), pool.spawn(lambda: read(stream) > 0).get(timeout=60)

def prepared():
    """A grammar, a picture that no model here reads, and a question that takes long to render."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    said = create(**ask, max_tokens=60, response_format=form).choices[0].message.content
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    try:
        create(model="any", messages=[{"role": "user", "content": [picture]}])
    except openai.BadRequestError as error:
        refused = error.param
    return list(json.loads(said)), refused

def stored():
    response = client.responses.create(model="any", input="Hi", max_output_tokens=5)
    running = client.responses.create(model="any", input="Hi", background=True, max_output_tokens=100)
    events = [event.type for event in client.responses.retrieve(running.id, stream=True)]
    stopped = client.responses.create(model="any", input="Hi", background=True, max_output_tokens=150_000)
    stopped = client.responses.cancel(stopped.id).status
    last = client.responses.retrieve(running.id).status
    return client.responses.retrieve(response.id).id == response.id, events[-1] == f"response.{last}", stopped

def hosted():
    """Hooks run on other threads, also async ones, and are canceled with the greenlet that waits for them."""
    import asyncio
    pages, begun, ended = [{"url": "https://a.example", "text": "Rain."}], [], []
    def search(query):
        time.sleep(0.01)
        gevent.sleep(0.01)
        return pages
    async def search_later(query):
        await asyncio.sleep(0.01)
        return pages
    async def hang(query):
        begun.append(query)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(query)
    tool = {"type": "web_search"}
    asked = dict(model="any", input="Hi", tools=[tool], tool_choice=tool, max_output_tokens=200, temperature=0)
    made = []
    for hook in (search, search_later):
        with LocalOpenAI(hosted_tools={"web_search": hook}) as other:
            made.append(other.responses.create(**asked).output[0].status)
            asking = gevent.spawn(lambda: [*other.responses.create(**asked, stream=True)][-1].type)
            made.append(asking.get(timeout=60))
    with LocalOpenAI(hosted_tools={"web_search": hang}) as other:
        asking = gevent.spawn(lambda: other.responses.create(**asked))
        found = eventually(lambda: begun)
        asking.kill()
        return made, found and eventually(lambda: ended)

def deadline():
    """What waits for a store that another process uses ends in time, and stops no other greenlet."""
    import sqlite3
    path = EMPTY + ".sqlite"
    options = dict(store=path, keep_alive=0, max_retries=0)
    with LocalOpenAI(MODEL, **options) as other:
        def answer(**options):
            return other.responses.create(model="any", input="Hi", max_output_tokens=5, **options)
        def late(work):
            try:
                work()
            except openai.APITimeoutError:
                return True
        kept = answer()
        process = sqlite3.connect(path, isolation_level=None)
        process.execute("BEGIN IMMEDIATE")
        before = beats[0]
        works = [
            lambda: answer(timeout=0.5),
            lambda: list(answer(timeout=0.5, stream=True)),
            lambda: answer(timeout=0.5, background=True),
            lambda: other.responses.delete(kept.id, timeout=0.5),
        ]
        waiting = [gevent.spawn(late, work) for work in works]
        said = create(**ask, max_tokens=5).usage.completion_tokens
        gevent.joinall(waiting, timeout=60)
        process.execute("ROLLBACK")
        ran = beats[0] - before > 20
        return [each.value for each in waiting], said, ran, other.responses.retrieve(answer().id).status

def batches():
    lines = "\\n".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                                  "body": {**ask, "max_tokens": 4}}) for i in range(5))
    file = client.files.create(file=("a.jsonl", lines.encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    ended = eventually(lambda: client.batches.retrieve(batch.id).status == "completed")
    from localai_shim.client.batch_lines import answer_lines
    before = beats[0]
    return ended, len(list(answer_lines(client, lines.splitlines()))), beats[0] > before

def adapters():
    client.load_adapter("other", ADAPTER)
    said = create(**{**ask, "model": "other"}, max_tokens=3).usage.completion_tokens
    client.unload_adapter("other")
    return said

def failures():
    """A step that raises fails what is in flight, and the engine goes on; a model that cannot be loaded says so."""
    asking = when_it_runs(lambda: create(**ask, **long))
    parts = client._runtime.engine_of("")._loop._batcher
    def fail():
        raise ZeroDivisionError("planted")
    parts.step = fail
    try:
        asking.get(timeout=60)
    except openai.InternalServerError as error:
        failed = "planted" in str(error)
    os.makedirs(EMPTY, exist_ok=True)
    with open(EMPTY + "/config.json", "w") as file:
        file.write("{}")
    try:
        LocalOpenAI(EMPTY).chat.completions.create(**ask)
    except openai.APIError as error:
        unloadable = type(error).__name__
    return failed, create(**ask, max_tokens=3).usage.completion_tokens, unloadable

def processes():
    """Libraries start some, and threads, on the engine's thread; a program's own are gevent's, on its threads."""
    import subprocess
    from localai_shim.runtime.offload import aside
    def run():
        made = subprocess.run(["echo", "1"], stdout=subprocess.PIPE)
        return made.stdout.decode().strip(), made.returncode
    def pool():
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(2) as executor:
            return sum(executor.map(int, "123"))
    from gevent.subprocess import Popen
    with subprocess.Popen(["true"]) as mine:
        return aside(run), run(), type(mine) is Popen, mine.wait(), aside(pool)

def locks():
    """Those of libraries, which greenlets and threads of the system share; also where the latter have a hub."""
    def use(lock, rounds, pause):
        for _ in range(rounds):
            with lock:
                inside.append(1)
                pause(0.0005)
                crowds.append(len(inside))
                inside.pop()
            pause(0.0005)
        return True
    for pause in (system.sleep, time.sleep):
        for make in (threading.Lock, threading.RLock):
            for _ in range(10):
                lock, inside, crowds, ended = make(), [], [], []
                for _ in range(3):
                    system.make_thread(lambda: ended.append(use(lock, 6, pause)), name="other").start()
                ended += [each.get(timeout=30) for each in [gevent.spawn(use, lock, 3, gevent.sleep) for _ in range(4)]]
                assert eventually(lambda: len(ended) == 7) and set(crowds) == {1}
    return True

def kept():
    """Engines that nobody uses are unloaded after `keep_alive`, whatever thread let them go."""
    other = LocalOpenAI(MODEL, keep_alive=0.2, max_rows=3)
    engine = other._runtime.engine_of("")
    gevent.get_hub().threadpool.apply(other.close)
    return eventually(lambda: engine.is_closed)

def closed():
    def until_closed():
        try:
            read(create(**ask, **long, stream=True))
        except openai.APIConnectionError as error:
            return "closed" in str(error)
    reading = when_it_runs(until_closed)
    client.close()
    return reading.get(timeout=60)
'''

REPORT = """
outcomes = {}
for name in NAMES:
    with gevent.Timeout(60, RuntimeError(f"{name} takes too long")):
        outcomes[name] = globals()[name]()
outcomes["waited"] = waited[:3]
print(json.dumps(outcomes))
left = LocalOpenAI(MODEL).chat.completions.create(**ask, **long, stream=True)
next(left)  # the process ends amid a stream
"""
