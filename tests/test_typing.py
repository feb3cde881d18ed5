"""Type checkers see the SDK's own signatures, and the package is typed for strict users."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.client.arguments import AsyncClientArguments, ClientArguments
from localai_shim.options import OWN
from tests.samples import exhaustive

SAMPLE = """
from pathlib import Path
from typing import assert_type

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, CodeResult, LocalOpenAI, SearchResult, WebSearchHook, rerank
from localai_shim.client.routes import Generation
from localai_shim.contrib.rerank import prepare
from localai_shim.contrib.reranking import RerankResponse
from localai_shim.engine.ports import Group
from localai_shim.scale.parallel import processes
from localai_shim.testing import Request, ScriptedEngine, ScriptedOpenAI, rate_limit, scripted, timed, tool_call

client = LocalOpenAI(model="x", timeout=3.0)
takes_sdk: openai.OpenAI = client
fills_port: Group = processes
Generation(prepare)
answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
assert_type(answer, ChatCompletion)
stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
assert_type(stream, openai.Stream[ChatCompletionChunk])
assert_type(client.with_options(timeout=1), LocalOpenAI)
assert_type(rerank(client, "rain", ["sun", {"text": "rain", "page": 3}], top_n=1), RerankResponse)
with ScriptedEngine(["hi", ["h", b"i"]]) as engine:
    LocalOpenAI(engine=engine)


async def main() -> None:
    async with AsyncLocalOpenAI() as asynchronous:
        assert_type(await rerank(asynchronous, "rain", ["sun"], return_documents=True), RerankResponse)
        assert_type(
            await asynchronous.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}]),
            ChatCompletion,
        )


def test_mine(local_openai: ScriptedOpenAI) -> None:
    async def decide(request: Request) -> str:
        return request.user

    assert_type(local_openai.script("a", [tool_call("f", a=1), "b"], {"c": 2}, rate_limit(3), decide), ScriptedOpenAI)
    local_openai.when(user="x", predicate=lambda request: request.stream).reply(timed("a", first_token=1)).times(2)
    takes_ours: LocalOpenAI = local_openai
    assert_type(local_openai.calls, list[Request])
    assert_type(local_openai.responses.create(model="m", input="x").output_text, str)
    with scripted("a", clock="manual") as made:
        assert_type(made, ScriptedOpenAI)
    local_openai.script(3)  # E: no reply
    local_openai.when(usr="x")  # E: no criterion
    scripted(clock="slow")  # E: no such clock
    scripted(modl="x")  # E: no such setting


class Search:
    async def search(self, query: str, user_location: object = None) -> list[SearchResult]:
        return [SearchResult("https://a.example", text=query)]


class Wrong:
    def search(self, query: int) -> list[SearchResult]:
        return []

    def run(self, code: str, container: str) -> int:
        return 1


def run(code: str, container: str) -> CodeResult:
    return CodeResult(code, [])


hook: WebSearchHook = Search()
LocalOpenAI(hosted_tools={"web_search": hook, "code_interpreter": run})
LocalOpenAI(hosted_tools={"web_search": Search(), "code_interpreter": lambda code, container: "x"})
LocalOpenAI(hosted_tools={"web_search": Wrong()})  # E: the query is a text, and code has logs
SearchResult(url=3)  # E
rerank(client, ["rain"], ["sun"])  # E: the query is a text
client.chat.completions.create(model=3)  # E: a wrong call is still a type error
LocalOpenAI(modl="x")  # E: no such argument
AsyncLocalOpenAI(modl="x")  # E
LocalOpenAI(max_rows="4")  # E: an argument of ours
LocalOpenAI(timeout="3")  # E: an argument of the SDK
AsyncLocalOpenAI(default_headers={"x-a": 1})  # E
AsyncLocalOpenAI(api_key=lambda: "sk-1")  # E: it is awaited there
LocalOpenAI(api_key=lambda: "sk-1", timeout=openai.Timeout(3), default_query={"a": 1}, organization=None)
AsyncLocalOpenAI(max_retries=0, base_url="https://example.com", store="state.db", models={"a": Path("b"), "c": None})
"""


@exhaustive
@pytest.mark.timeout(300)  # mypy reads all of the SDK, without a cache
def test_strict_mypy_sees_the_sdk_s_types_through_the_clients(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, str(sample)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wrong = {number for number, line in enumerate(SAMPLE.split("\n"), 1) if "# E" in line}
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {int(line.split(":")[1]) for line in errors} == wrong, done.stdout + done.stderr


def members(annotation: Any) -> set[str]:
    """Names of a union's types, without the modules that they come from."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return {member.strip().removeprefix("openai.").replace("httpx2.", "httpx.") for member in text.split("|")}


NEWER = {"data_residency", "X509WorkloadIdentity", "NotGiven"}
"""What the SDK's 2.x line does not have, or not everywhere."""


@pytest.mark.parametrize(
    ("stock", "ours", "client"),
    [(openai.OpenAI, ClientArguments, LocalOpenAI), (openai.AsyncOpenAI, AsyncClientArguments, AsyncLocalOpenAI)],
    ids=["sync", "async"],
)
def test_constructor_arguments_have_the_sdk_s_types(stock: Any, ours: Any, client: Any) -> None:
    theirs = {name: each.annotation for name, each in inspect.signature(stock.__init__).parameters.items()}
    theirs.pop("self")
    typed = {name: each for name, each in ours.__annotations__.items() if name not in OWN}
    assert set(typed) - set(theirs) <= NEWER
    assert set(theirs) <= set(typed)
    for name, annotation in theirs.items():
        more = members(typed[name]) ^ members(annotation)
        assert more <= NEWER and (not more or openai.__version__.startswith("2.")), name
    shown = inspect.signature(client).parameters
    assert list(shown) == ["model", *OWN, "http_client", "options"]
    assert members(shown["http_client"].annotation) == members(theirs["http_client"])


@pytest.mark.parametrize("client", [LocalOpenAI, AsyncLocalOpenAI])
def test_an_argument_that_does_not_exist_is_refused_with_the_one_that_does(client: Any) -> None:
    for wrong, right in (("modl", "model"), ("time_out", "timeout"), ("max_row", "max_rows")):
        message = rf"{client.__name__}\(\) got an unexpected keyword argument '{wrong}'. Did you mean '{right}'\?"
        with pytest.raises(TypeError, match=message):
            client(**{wrong: "x"})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'quantum'$"):
        client(quantum="x")
