"""The pages of parameters have a row for every parameter of the SDK's signatures, and each row says what happens."""

from __future__ import annotations

import inspect
import json
import operator
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.client.arguments import DOCUMENTED
from localai_shim.options import OWN
from tests.conftest import MESSAGES
from tests.endpoints.audio.listening import ListeningEngine, says, sound
from tests.engine.harness import eventually
from tests.floats import nearly, plain
from tests.mlx_audio_models import tiny_speech

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("parameters*.md"))
TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]
COMMON = re.compile(r"\[Common arguments\]\(parameters\.md#([\w-]+)\)")
HEAD = "\n| parameter | status | what it does |\n|---|---|---|\n"
VERSION = tuple(int(part) for part in openai.__version__.split(".")[:2])
READ = (3, 54)
"""The SDK whose signatures were read. What a later one adds is refused as unknown until it gets its row."""
NEWEST = VERSION == READ

RESOURCES = {
    "chat.completions": "create retrieve list update delete",
    "chat.completions.messages": "list",
    "completions": "create",
    "embeddings": "create",
    "audio.transcriptions": "create",
    "audio.translations": "create",
    "audio.speech": "create",
    "responses": "create retrieve delete cancel compact",
    "responses.input_items": "list",
    "responses.input_tokens": "count",
    "conversations": "create retrieve update delete",
    "conversations.items": "create list retrieve delete",
    "files": "create retrieve content list delete",
    "vector_stores": "create retrieve update list delete search",
    "vector_stores.files": "create retrieve update list delete content",
    "vector_stores.file_batches": "create retrieve cancel list_files",
    "batches": "create retrieve list cancel",
    "models": "list retrieve",
}
CLIENTS: tuple[Any, ...] = (openai.OpenAI(api_key="unused"), openai.AsyncOpenAI(api_key="unused"))
METHODS: dict[str, tuple[Callable[..., Any], ...]] = {
    f"{resource}.{name}": tuple(getattr(type(operator.attrgetter(resource)(client)), name) for client in CLIENTS)
    for resource, names in RESOURCES.items()
    for name in names.split()
}
CREATING = ("chat.completions.create", "completions.create", "responses.create")
LISTENING = ("audio.transcriptions.create", "audio.translations.create")


def anchor(heading: str) -> str:
    return heading.strip().lower().replace(" ", "-")


def read_tables() -> dict[str, dict[str, str]]:
    """Heading -> {parameter: status}. Tables under one heading count as one; those that it refers to are included."""
    tables: dict[str, dict[str, str]] = {}
    common: dict[str, str] = {}
    for section in (section for text in TEXTS for section in text.split("\n## ")[1:]):
        heading, _, text = section.partition("\n")
        rows = re.findall(r"^\| `(\w+)` \| (no effect|\w+) \| (.+?) \|$", text, flags=re.MULTILINE)
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) == len(lines) - 2 * text.count("|---|---|---|"), f"a row of '{heading}' has another form"
        tables[heading.strip()] = {name: status for name, status, _ in rows}
        assert len(tables[heading.strip()]) == len(rows), f"a parameter of '{heading}' has two rows"
        if (found := COMMON.search(text)) is not None:
            common[heading.strip()] = found[1]
    shared = {anchor(heading): table for heading, table in tables.items() if heading.startswith("Common arguments")}
    return {heading: shared.get(common.get(heading, ""), {}) | table for heading, table in tables.items()}


TABLES = read_tables()
CONSTRUCTOR = TABLES["Arguments of LocalOpenAI and AsyncLocalOpenAI"]
EXTRA = TABLES["Fields of extra_body"]


def parameters(function: Callable[..., Any]) -> set[str]:
    """Names of what a function takes, but for self and **options."""
    found = inspect.signature(function).parameters.values()
    return {p.name for p in found if p.name != "self" and p.kind is not p.VAR_KEYWORD}


def rows(heading: str, status: str) -> list[str]:
    return [name for name, has in TABLES[heading].items() if has == status]


@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_has_its_row(method: str) -> None:
    for function in METHODS[method]:
        assert VERSION > READ or parameters(function) <= set(TABLES[method])
        if NEWEST:
            assert parameters(function) == set(TABLES[method])


def test_every_argument_of_the_clients_has_its_row() -> None:
    for ours, theirs in ((LocalOpenAI, openai.OpenAI), (AsyncLocalOpenAI, openai.AsyncOpenAI)):
        taken = parameters(ours.__init__) | parameters(theirs.__init__)
        assert VERSION > READ or taken <= set(CONSTRUCTOR)
        if NEWEST:
            assert taken == set(CONSTRUCTOR)


def test_the_clients_own_arguments_have_the_rows_that_their_options_make() -> None:
    rows = "".join(f"| `{name}` | supported | {option.doc} |\n" for name, option in DOCUMENTED.items())
    section = "".join(TEXTS).partition("\nLocal options:\n")[2].partition("\nArguments of the OpenAI SDK:\n")[0]
    assert section == f"{HEAD}{rows}"


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_the_docstring_says_what_each_argument_does(make: type) -> None:
    text = " ".join((make.__doc__ or "").split())
    for name, option in OWN.items():
        assert f" {name}: {option.doc} " in text


def test_each_status_is_one_of_three() -> None:
    assert {status for table in TABLES.values() for status in table.values()} == {"supported", "no effect", "rejected"}


# -- rejected ----------------------------------------------------------------------------------------------------------

REFUSED: dict[str, Any] = {
    "access_programs": {"cyber": "standard"},
    "known_speaker_names": ["Ada"],
    "known_speaker_references": ["data:audio/wav;base64,AAAA"],
    "audio": {"voice": "alloy", "format": "wav"},
    "context_management": [{"type": "compaction"}],
    "moderation": {"model": "omni-moderation-latest"},
    "prompt": {"id": "pmpt_1"},
}
REFUSED_ROWS = [(method, name) for method in METHODS for name in rows(method, "rejected")]


def create(client: LocalOpenAI, method: str, **kwargs: Any) -> Any:
    """Call a method with what it needs and little more."""
    if method in LISTENING:
        ears = LocalOpenAI(engine=ListeningEngine(says(0.0, " Hello.", 1.0)))
        return getattr(ears.audio, method.split(".")[1]).create(**{"model": "m", "file": sound(1), **kwargs})
    if method == "chat.completions.create":
        return client.chat.completions.create(
            **{"model": "m", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, **kwargs}
        )
    if method == "completions.create":
        kwargs = {"prompt": "Hello", "max_tokens": 8, "temperature": 0, **kwargs}
        return client.completions.create(**{"model": "m", **kwargs})
    if method == "responses.create":
        if "max_tokens" in kwargs:
            kwargs["max_output_tokens"] = kwargs.pop("max_tokens")
        kwargs = {"max_output_tokens": 8, "temperature": 0, **kwargs}
        if "stream_options" in kwargs:
            return list(client.responses.create(**{"model": "m", "input": "Hello there", "stream": True, **kwargs}))[
                -1
            ].response
    call = getattr(operator.attrgetter(method.rpartition(".")[0])(client), method.rpartition(".")[2])
    return call(**{"model": "m", "input": "Hello there", **kwargs})


def said(made: Any) -> list[Any]:
    """What an answer says, without ids."""
    return [made.output_text, made.usage.total_tokens] if made.object == "response" else made.choices


@pytest.mark.parametrize(("method", "name"), REFUSED_ROWS)
def test_what_is_rejected_raises_and_names_the_parameter(client: LocalOpenAI, method: str, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, method, extra_body={name: REFUSED[name]})
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert isinstance(caught.value.body, dict) and f"'{name}'" in caught.value.body["message"]


# -- no effect ---------------------------------------------------------------------------------------------------------

ACCEPTED: dict[str, list[Any]] = {
    "chunking_strategy": ["auto", {"type": "server_vad", "threshold": 0.5}],
    "background_options": [{"completion_window": "soonest", "continuation_id": "mine"}],
    "extra_headers": [{"x-mine": "1"}],
    "extra_query": [{"page": "2"}],
    "image": [{"context_compression": "auto"}],
    "max_tool_calls": [1],
    "metadata": [{}, {"topic": "tests"}],
    "modalities": [["text"]],
    "personality": ["friendly"],
    "prompt_cache_key": ["key"],
    "prompt_cache_options": [{"mode": "explicit"}],
    "prompt_cache_retention": ["in_memory", "24h"],
    "safety_identifier": ["me"],
    "service_tier": ["auto", "default", "flex", "priority"],
    "stream_options": [{"include_obfuscation": False}],
    "user": ["me"],
}


def accepted(methods: Iterable[str]) -> list[tuple[str, str]]:
    """Each method with each of the parameters that it accepts; older SDKs have fewer."""
    return [(m, name) for m in methods for name in rows(m, "no effect") if name in parameters(METHODS[m][0])]


ACCEPTED_ROWS = accepted(CREATING)


@pytest.mark.parametrize(("method", "name"), ACCEPTED_ROWS)
def test_what_has_no_effect_changes_nothing(client: LocalOpenAI, method: str, name: str) -> None:
    plain = create(client, method)
    for value in ACCEPTED[name]:
        made = create(client, method, **{name: value})
        assert said(made) == said(plain) and made.usage.total_tokens == plain.usage.total_tokens


@pytest.mark.parametrize(("method", "name"), accepted(["embeddings.create"]))
def test_what_has_no_effect_changes_no_vector(client: LocalOpenAI, method: str, name: str) -> None:
    for value in ACCEPTED[name]:
        assert plain(create(client, method, **{name: value})) == nearly(create(client, method))


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
@pytest.mark.parametrize(("method", "name"), accepted(LISTENING))
def test_what_has_no_effect_changes_no_transcription(client: LocalOpenAI, method: str, name: str) -> None:
    for value in ACCEPTED[name]:
        assert create(client, method, **{name: value}) == create(client, method)


@pytest.mark.parametrize(("method", "name"), accepted(["audio.speech.create"]))
def test_what_has_no_effect_changes_no_speech(method: str, name: str) -> None:
    given: dict[str, Any] = {"voice": "ryan", "response_format": "pcm", "extra_body": {"seed": 1}}
    with LocalOpenAI(tiny_speech("qwen3_tts")) as speaker:
        for value in ACCEPTED[name]:
            made = create(speaker, method, **given, **{name: value})
            assert made.content == create(speaker, method, **given).content


STORED = [m for m in METHODS if m not in CREATING and not m.startswith(("models", "embeddings", "audio"))]
SAME = ("retrieve", "list", "count")  # what can be asked again and again


def bound(client: LocalOpenAI, method: str) -> Callable[..., Any]:
    """A method that concerns stored objects, with what it needs, made for it."""
    resource, _, name = method.rpartition(".")
    given: dict[str, Any] = {}
    if resource.startswith("chat"):
        given["completion_id"] = create(client, "chat.completions.create", store=True).id
    elif method in ("responses.compact", "responses.input_tokens.count"):
        given |= {"model": "m", "input": "Hello there"}
    elif resource.startswith("responses"):
        made = create(client, "responses.create", background=name == "cancel")
        assert eventually(lambda: client.responses.retrieve(made.id).status == "incomplete")
        given["response_id"] = made.id
    elif resource == "files":
        file = ("some.jsonl", b"{}")
        if name == "create":
            given = {"file": file, "purpose": "batch"}
        elif name != "list":
            given["file_id"] = client.files.create(file=file, purpose="batch").id
    elif resource.startswith("vector_stores"):
        return partial(getattr(operator.attrgetter(resource)(client), name), **in_vector_store(client, resource, name))
    elif resource == "batches":
        window: Any = {"completion_window": "24h", "endpoint": "/v1/completions"}
        line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "Hi"}}
        window["input_file_id"] = client.files.create(file=json.dumps(line).encode(), purpose="batch").id
        if name == "create":
            given = window
        elif name != "list":
            made = client.batches.create(**window)
            given["batch_id"] = made.id
            if name == "cancel":
                client.batches.cancel(made.id)
            assert eventually(lambda: client.batches.retrieve(made.id).status in ("completed", "cancelled"))
    elif method != "conversations.create":
        made = client.conversations.create(items=[{"role": "user", "content": "Hello"}])
        given["conversation_id"] = made.id
        if "item_id" in parameters(METHODS[method][0]):
            given["item_id"] = client.conversations.items.list(made.id).data[0].id
    if method == "chat.completions.list":
        given = {}
    if method == "responses.compact":
        given["extra_body"] = {"guided_choice": ["We said hello."]}
    if name == "update":
        given["metadata"] = {"topic": "tests"}
    if method == "conversations.items.create":
        given["items"] = [{"role": "user", "content": "Hello again"}]
    return partial(getattr(operator.attrgetter(resource)(client), name), **given)


def in_vector_store(client: LocalOpenAI, resource: str, name: str) -> dict[str, Any]:
    """Fields that a method about vector stores needs."""
    if resource == "vector_stores" and name in ("create", "list"):
        return {}
    given: dict[str, Any] = {"vector_store_id": client.vector_stores.create(name="docs").id}
    if name == "search":
        given["query"] = "rain"
    if resource == "vector_stores":
        return {**given, "name": "papers"} if name == "update" else given
    file = client.files.create(file=("some.txt", b"Hello"), purpose="assistants").id
    batched = resource.endswith("batches")
    if name == "create":
        return {**given, "file_ids": [file]} if batched else {**given, "file_id": file}
    batch = client.vector_stores.file_batches.create_and_poll(file_ids=[file], poll_interval_ms=5, **given)
    if batched:
        return {**given, "batch_id": batch.id}
    if name != "list":
        given["file_id"] = file
    return {**given, "attributes": {"a": 1}} if name == "update" else given


ACCEPTED_STORED: dict[str, Any] = {
    **{name: values[-1] for name, values in ACCEPTED.items()},
    "include": ["reasoning.encrypted_content"],
    "include_obfuscation": False,
    "rewrite_query": True,
    "timeout": 60,
}
STORED_ROWS = accepted(STORED)


@pytest.mark.parametrize(("method", "name"), STORED_ROWS)
def test_what_has_no_effect_changes_nothing_of_what_is_stored(client: LocalOpenAI, method: str, name: str) -> None:
    call = bound(client, method)
    made = call(**{name: ACCEPTED_STORED[name]})
    if method.endswith(SAME):
        assert made.model_dump() == call().model_dump()
    else:
        assert type(made) is type(bound(client, method)())


EXTRA_ROWS = [
    (method, name) for method in STORED for name in ("extra_query", "extra_body") if name in rows(method, "supported")
]


@pytest.mark.parametrize(("method", "name"), EXTRA_ROWS)
def test_what_an_endpoint_does_not_know_is_refused(client: LocalOpenAI, method: str, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        bound(client, method)(**{name: {"colour": "red"}})
    assert (caught.value.param, caught.value.code) == ("colour", "unknown_parameter")


@pytest.mark.parametrize("name", ["extra_headers", "extra_query", "extra_body", "timeout"])
def test_models_answer_alike_whatever_comes_with_the_request(client: LocalOpenAI, name: str) -> None:
    assert TABLES["models.list"][name] == TABLES["models.retrieve"][name] == "no effect"
    value: Any = 1.0 if name == "timeout" else {"x": "1"}
    assert client.models.list(**{name: value}).data == client.models.list().data
    assert client.models.retrieve("tiny-qwen3", **{name: value}) == client.models.retrieve("tiny-qwen3")


# -- supported ---------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "frequency_penalty": 2,
    "logit_bias": {"80": 100},
    "max_completion_tokens": 3,
    "max_output_tokens": 3,
    "max_tokens": 3,
    "echo": True,
    "n": 2,
    "presence_penalty": 2,
    "seed": 1,
    "stop": list("aeno"),
    "temperature": 2,
    "top_p": 0.01,
    "top_k": 1,
    "min_p": 1.0,
    "repetition_penalty": 5,
    "response_format": {"type": "json_object"},
    "text": {"format": {"type": "json_object"}},
    "instructions": "Be brief.",
    "guided_json": {"type": "integer"},
    "guided_regex": "[0-9]{3}",
    "guided_choice": ["yes", "no"],
    "guided_grammar": 'start: "a" "b"+',
    "structured_outputs": {"regex": "[0-9]{3}"},
    "allowed_token_ids": [80, 81],
    "bad_words": [chr(code) for code in range(33, 127)],
    "stop_token_ids": list(range(80, 200)),
}
"""Values with which the seeded answer below is another one."""

CHANGES_ROWS = [
    (method, name)
    for method in CREATING
    for name in CHANGES
    if name in TABLES[method] or (name in EXTRA and name != "response_format")
] + [("responses.create", name) for name in ("frequency_penalty", "logit_bias", "presence_penalty", "seed", "stop")]


UNCHANGED: dict[tuple[str, str], list[Any]] = {}
"""What is said without the parameter: the same each time."""


@pytest.mark.parametrize(("method", "name"), CHANGES_ROWS)
def test_what_is_supported_changes_the_answer(client: LocalOpenAI, method: str, name: str) -> None:
    assert (TABLES["chat.completions.create"] | TABLES[method] | EXTRA)[name] == "supported"
    base: dict[str, Any] = {"temperature": 1, "max_tokens": 24, "extra_body": {"ignore_eos": True, "seed": 4}}
    changed = {**base, "extra_body": {**base["extra_body"], name: CHANGES[name]}}
    if name == "max_completion_tokens":
        changed["max_tokens"] = None
    if (method, str(base)) not in UNCHANGED:
        UNCHANGED[method, str(base)] = said(create(client, method, **base))
    assert said(create(client, method, **changed)) != UNCHANGED[method, str(base)]


# -- the constructor --------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, Any] = {
    "api_key": "sk-mine",
    "admin_api_key": "sk-admin",
    "base_url": "https://api.openai.com/v1",
    "data_residency": "eu",
    "default_headers": {"x-mine": "1"},
    "default_query": {"page": "2"},
    "max_retries": 7,
    "organization": "org",
    "project": "proj",
    "provider": "azure",
    "websocket_base_url": "wss://api.openai.com/v1",
    "workload_identity": {"provider": "x"},
    "_enforce_credentials": True,
}
ATTRIBUTES = ("api_key", "max_retries", "organization", "project")


def test_the_table_above_has_every_accepted_argument() -> None:
    assert {name for name, status in CONSTRUCTOR.items() if status == "no effect"} == set(ARGUMENTS) | {"http_client"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_accepted_argument_leads_nowhere(client: LocalOpenAI, model_path: Path, name: str) -> None:
    with LocalOpenAI(model_path, **{name: ARGUMENTS[name]}) as made:
        assert made.base_url.host == "localhost"
        assert create(made, "chat.completions.create").choices == create(client, "chat.completions.create").choices
        if name in ATTRIBUTES:
            assert getattr(made, name) == ARGUMENTS[name]


def test_an_http_client_lends_its_timeout_only(client: LocalOpenAI, model_path: Path) -> None:
    from localai_shim.sdk.private import httpx

    with httpx.Client(timeout=77) as foreign, LocalOpenAI(model_path, http_client=foreign) as made:
        assert made.timeout == httpx.Timeout(77)
        assert create(made, "chat.completions.create").choices == create(client, "chat.completions.create").choices
    assert made.is_closed() and not client.is_closed()


@pytest.mark.parametrize(
    "arguments",
    [{"context_length": 0}, {"max_rows": -1}, {"max_stall": 0}, {"models": {}}, {"model": "x", "models": {"a": "x"}}],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        LocalOpenAI(**arguments)
