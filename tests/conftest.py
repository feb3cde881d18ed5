"""What several tests share: one tiny model, clients of it, mlx-lm alone as the oracle, and tokenizers."""

# ruff: noqa: E402

from __future__ import annotations

import contextlib
import gc
import os
import pkgutil
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # logfire's costs a process 2 s, and scripts that tests start 0.3 s
gc.disable()  # until everything is imported and collected, all of which stays

from tests import cores, machines, temporary
from tests.samples import in_part, mark_many
from tests.slow import slow

cores.keep_to_one()  # before any library starts a thread
machines.imitate()
temporary.keep_in_one_folder()

import numpy as np
import openai
import pytest
from hypothesis import HealthCheck, settings
from openai.types import CompletionUsage

from localai_shim.backends.machine import require_backend

require_backend()  # before any test imports MLX: it chooses the BLAS

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, endpoints
from localai_shim.endpoints import request_fields
from localai_shim.endpoints.responses import create as responses
from localai_shim.endpoints.responses.assembler import ResponseAssembler
from localai_shim.formats.description import CallFormat
from localai_shim.models.text import TextTokenizer
from localai_shim.prompt.template import ChatTokenizer
from localai_shim.runtime.host import connect
from localai_shim.sdk import event_stream
from localai_shim.sdk import private as sdk
from localai_shim.types import Token
from tests.bodies import CheckedResponse, CheckedStreamResponse, violations
from tests.endpoints.pictures import data_url, image_url, user
from tests.endpoints.responses.legal import check_stream
from tests.tiny import CORPUS, byte_fallback_tokenizer, make_tokenizer, tiny

# A machine that other programs keep busy is no failure of what draws examples, nor of what is tested with them.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

connect()  # many tests run an engine, or its parts, without a client

ROOT = Path(__file__).parents[1]

MESSAGES: list[Any] = [{"role": "user", "content": "Hello there"}]

TEXTS = [
    "Hello, world!",
    "two  spaces, a tab\tand\n\nlines",
    "ends with a space ",
    "Zażółć gęślą jaźń",
    "Привет, мир! 你好,世界。",
    "flags 🇫🇷 and families 👩‍👩‍👧 and 🙂🚀",
    "def f(x):\n    return x  # don't , . ? !",
    "e\u0301 is not é",
]
"""Texts whose characters take from one to several tokens."""


Adjust = Callable[[np.ndarray, list[int]], np.ndarray]
"""(logits of the next token, tokens generated so far) -> logits to draw from."""


class Oracle:
    """mlx-lm's own model, one request at a time, recomputed from the start for every token."""

    def __init__(self, path: Path) -> None:
        import mlx_lm

        self._model, self.tokenizer = mlx_lm.load(str(path))

    def prompt(self, messages: list[Any] = MESSAGES) -> list[int]:
        """Prompt tokens of a conversation."""
        return list(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True))

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """`[vocabulary]` float64: the logits of the token after these."""
        import mlx.core as mx

        out = self._model(mx.array([list(ids)]))[0, -1].astype(mx.float32)
        return np.array(out).astype(np.float64)

    def logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """Natural log-softmax of `logits`."""
        logits = self.logits(ids)
        return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())

    def greedy(self, prompt: Sequence[int], n: int, adjust: Adjust | None = None) -> list[int]:
        """Up to n tokens after a prompt, the first end of sequence included."""
        out: list[int] = []
        while len(out) < n and not (out and out[-1] in self.tokenizer.eos_token_ids):
            logits = self.logits([*prompt, *out])
            out.append(int(np.argmax(logits if adjust is None else adjust(logits, out))))
        return out

    def text(self, ids: Sequence[int]) -> str:
        """What the tokens say, without an end of sequence."""
        return str(self.tokenizer.decode([i for i in ids if i not in self.tokenizer.eos_token_ids]))


@contextlib.contextmanager
def refused(param: str | None, code: str | None, fragment: str) -> Iterator[None]:
    """A 400 that names the field, with OpenAI's code and a piece of the message."""
    with pytest.raises(openai.BadRequestError) as caught:
        yield
    error = caught.value
    assert (error.param, error.code) == (param, code)
    assert isinstance(error.body, dict)
    assert fragment in error.body["message"]


def revalidate(made: Any) -> None:
    """The object is what its own class demands, whole: every required field is there and of the right type."""
    again = type(made).model_validate(made.model_dump(), strict=True)
    assert again == made


MOST_OBJECTS = 50_000  # that the garbage collector looks through


class RecordingAssembler(ResponseAssembler):
    """Remembers the events of a response."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told: list[Any] = []

    def begin(self) -> list[Any]:
        return self._noted(super().begin())

    def start(self) -> list[Any]:
        return self._noted(super().start())

    def feed(self, index: int, token: Token) -> list[Any]:
        return self._noted(super().feed(index, token))

    def fail(self, error: Exception) -> list[Any]:
        return self._noted(super().fail(error))

    def cancel(self) -> list[Any]:
        return self._noted(super().cancel())

    def _noted(self, events: list[Any]) -> list[Any]:
        # Callers may do to an item what they like: LlamaIndex completes the one of a call.
        self.told.extend(e.model_copy(deep=True) if e.type == "response.output_item.added" else e for e in events)
        return events


@pytest.fixture(autouse=True)
def _each_test_draws_alike_and_all_that_is_answered_is_legal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """What holds of every test; one fixture, as each takes time ten thousand times.

    Requests without a seed get one from a list that begins anew with each test: random models end when they like.
    Whatever a test makes of the Responses API: its events are held against the grammar of legal streams. Responses in
    the background that an earlier test left are not this test's. Whatever it makes at all: its raw bodies and events
    are held against OpenAI's published description.
    """
    numbers = random.Random(0)
    monkeypatch.setattr(request_fields, "new_seed", lambda: numbers.getrandbits(request_fields.SEED_BITS))
    made: list[RecordingAssembler] = []

    def make(**options: Any) -> RecordingAssembler:
        made.append(RecordingAssembler(**options))
        return made[-1]

    monkeypatch.setattr(responses, "ResponseAssembler", make)
    violations.clear()
    if request.node.get_closest_marker("timed") is None:
        monkeypatch.setattr(sdk, "LocalResponse", CheckedResponse)
        monkeypatch.setattr(event_stream, "LocalStreamResponse", CheckedStreamResponse)
    yield
    assert not violations
    for assembler in made:
        events = list(assembler.told)
        ended = bool(events) and events[-1].type in ("response.completed", "response.incomplete", "response.failed")
        if events:  # a whole answer that fails has but the end of a stream, which nobody sees
            check_stream(events, complete=ended)


@pytest.fixture(scope="session")
def every_endpoint() -> None:
    """All that is imported at the first request of its kind is imported."""
    for module in pkgutil.walk_packages(endpoints.__path__, f"{endpoints.__name__}."):
        import_module(module.name)
    sdk.httpx.HTTPTransport().close()  # which imports the exceptions that httpx holds against those it meets


@pytest.fixture(scope="session")
def sees_already() -> None:
    """All that the model in the package that sees imports is imported, for `pytester` forgets what it brings."""
    with LocalOpenAI("builtin:vision", keep_alive=0) as client:
        client.chat.completions.create(model="m", messages=[user(image_url(data_url()), "What is this?")])


@pytest.fixture
def pytester(every_endpoint: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Runs sessions in a test, with the plugins that they are given: to import all that are installed takes 0.3 s.

    What they import first is forgotten at their end. It would be there twice then, with classes of its own.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


@pytest.fixture(scope="session")
def model_path() -> Path:
    """A tiny dense model with random weights."""
    return tiny("qwen3")


@pytest.fixture(scope="session")
def oracle(model_path: Path) -> Oracle:
    return Oracle(model_path)


@pytest.fixture(scope="session")
def client(model_path: Path) -> Iterator[LocalOpenAI]:
    """Serves every model name with the tiny model."""
    with LocalOpenAI(model_path) as client:
        yield client


@pytest.fixture(scope="session")
def builtin() -> Iterator[LocalOpenAI]:
    """The checkpoint that ships with the package, which answers in sentences and ends its turns."""
    with LocalOpenAI() as client:
        yield client


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Tests marked `anyio` run on both event loops."""
    return str(request.param)


@pytest.fixture
async def async_client(model_path: Path, client: LocalOpenAI) -> AsyncIterator[AsyncLocalOpenAI]:
    """As `client`, of which it shares the engine; made on the test's own event loop."""
    async with AsyncLocalOpenAI(model_path) as made:
        yield made


def _make_sentencepiece(folder: Path) -> None:
    """A BPE tokenizer with byte fallback in the form that Llama 2 ships."""
    from tokenizers import decoders, normalizers
    from transformers import PreTrainedTokenizerFast

    normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer = byte_fallback_tokenizer(normalizer, [text for text in CORPUS if text.isascii()])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def chat_tokenizer(tokenizer: Any, calls: CallFormat | None = None) -> ChatTokenizer:
    """A tokenizer as the endpoints see it, with the adapter's way to render, and no model."""
    model = SimpleNamespace(tokenizer=tokenizer, cuts_anywhere=True, embedded=None, media_kinds=frozenset())
    for method in (TextTokenizer.encode, TextTokenizer.encode_all, TextTokenizer.apply_chat_template):
        setattr(model, method.__name__, partial(method, model))
    return ChatTokenizer(model, calls)  # type: ignore[arg-type]


def load_tokenizer(folder: Path) -> Any:
    """mlx-lm's wrapper of the tokenizer in a folder."""
    from mlx_lm.tokenizer_utils import load

    return load(folder)


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """mlx-lm's wrapper of a byte-level tokenizer, GPT-2's kind."""
    folder = tmp_path_factory.mktemp("byte_level")
    make_tokenizer(folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """mlx-lm's wrapper of a sentencepiece tokenizer."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    _make_sentencepiece(folder)
    return load_tokenizer(folder)


@pytest.fixture(params=["byte_level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """Each of the two families."""
    return request.getfixturevalue(request.param)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """`make test PART=0/3` imports only the files of its part."""
    return True if collection_path.suffix == ".py" and not _is_of_this_part(collection_path) else None


def _is_of_this_part(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return in_part(name, os.environ.get("TEST_FILES"))


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` runs a sample of a test with many cases, and leaves out what takes long.

    `make test PART=0/3` runs the tests of one third of the files, and `make test-exhaustive PART=0/3` one third of the
    tests, the same ones each time.
    """
    mark_many(items, slow())
    part = os.environ.get("TEST_PART")
    left = {item for item in items if not (_is_of_this_part(item.path) and in_part(item.nodeid, part))}
    if left:  # files that are named in the command are imported in any case
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A part of few tests may have none, which is no failure; without parts it is."""
    in_parts = os.environ.get("TEST_PART") or os.environ.get("TEST_FILES")
    if in_parts and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _what_was_imported_since_stays_as_well() -> Iterator[None]:
    """A model that goes has the collector look through everything: with a million objects that takes half a second."""
    yield
    if len(gc.get_objects()) > MOST_OBJECTS:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _compiled_kernels_are_shared() -> Iterator[None]:
    yield
    temporary.share_kernels()


@pytest.fixture
def without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is let go of goes by reference counts alone, as long as the test runs."""
    gc.collect()
    gc.disable()
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    yield
    monkeypatch.undo()
    gc.enable()


def counted(usage: CompletionUsage | None) -> tuple[int, int]:
    """Tokens of a prompt and of its answer. How many of them were cached depends on the requests before."""
    assert usage is not None
    return usage.prompt_tokens, usage.completion_tokens


def without_generated(made: Any, *names: str) -> Any:
    """An answer, or some of its fields, without ids, times and fields of these names."""
    fields = made.to_dict() if isinstance(made, openai.BaseModel) else made
    if isinstance(fields, dict):
        generated = ("id", "created", "created_at", "completed_at", "item_id", "call_id", *names)
        return {key: without_generated(value, *names) for key, value in fields.items() if key not in generated}
    return [without_generated(each, *names) for each in fields] if isinstance(fields, list) else fields
