"""What we rely on in the SDK beyond its public names: each test fails when the SDK moves it."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
from typing import Any

import openai
import pytest
from openai import AsyncStream, Stream
from openai.types.chat import ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.sdk import private as sdk
from localai_shim.sdk import stock_clients
from tests.warm import python


@pytest.mark.parametrize("base", [openai.OpenAI, openai.AsyncOpenAI])
def test_the_methods_that_we_override_or_call_are_there_with_these_parameters(base: type) -> None:
    def parameters(name: str) -> set[str]:
        return set(inspect.signature(getattr(base, name)).parameters)

    assert parameters("request") == {"self", "cast_to", "options", "stream", "stream_cls"}
    expected = {"self", "cast_to", "options", "response", "stream", "stream_cls", "retries_taken"}
    assert parameters("_process_response") == expected
    assert parameters("_process_response_data") == {"self", "data", "cast_to", "response"}
    assert parameters("_maybe_override_cast_to") == {"self", "cast_to", "options"}
    assert parameters("_make_status_error_from_response") == {"self", "response"}
    assert parameters("_validate_headers") == {"self", "headers", "custom_headers"}
    assert parameters("_should_retry") == {"self", "response"}
    assert parameters("_calculate_retry_timeout") == {"self", "remaining_retries", "options", "response_headers"}
    assert {"http_client", "_extra_kwargs", "timeout", "max_retries"} <= parameters("copy")


@pytest.mark.parametrize("base", [openai.OpenAI, openai.AsyncOpenAI])
def test_what_is_patched_for_code_under_test_is_there(base: Any) -> None:
    assert not stock_clients.is_wrapped(base.request)
    assert {"retries_taken", "options", "response"} <= set(
        inspect.signature(getattr(base, stock_clients.SLEEP)).parameters
    )
    assert {"api_key", "http_client", "provider", "workload_identity", "websocket_base_url"} <= set(
        inspect.signature(base.__init__).parameters
    )
    assert {"_client", "api_key", "api_type", "http_client"} <= set(stock_clients.module_settings())
    assert {"_provider_runtime", "_workload_identity_auth", "websocket_base_url"} <= set(vars(base(api_key="x")))
    assert set(inspect.signature(base._prepare_options).parameters) == {"self", "options"}
    assert set(inspect.signature(base._prepare_request).parameters) == {"self", "request"}


@pytest.mark.parametrize(
    ("base", "arguments"),
    [
        (openai.AzureOpenAI, {"api_key", "azure_ad_token", "azure_ad_token_provider", "api_version", "azure_endpoint"}),
        (openai.BedrockOpenAI, {"api_key", "bedrock_token_provider", "aws_region", "aws_profile", "aws_access_key_id"}),
    ],
)
def test_arguments_of_the_sdk_s_subclasses_that_sign_in_are_there(base: type, arguments: set[str]) -> None:
    assert arguments <= set(inspect.signature(base).parameters)


@pytest.mark.parametrize("base", [Stream, AsyncStream])
def test_a_stream_gets_its_items_from_dunder_stream(base: type) -> None:
    assert set(inspect.signature(base).parameters) == {"cast_to", "response", "client", "options"}
    assert callable(base.__stream__)  # type: ignore[attr-defined]


def test_the_sdk_s_stream_classes_become_ours_and_keep_their_item_type() -> None:
    sync, asynchronous = sdk.localise(Stream[ChatCompletionChunk]), sdk.localise(AsyncStream[ChatCompletionChunk])
    assert sync.__origin__ is sdk.LocalStream and sync.__args__ == (ChatCompletionChunk,)
    assert asynchronous.__origin__ is sdk.LocalAsyncStream
    assert sdk.localise(Stream[ChatCompletionChunk]) is sync
    assert sdk.localise(sync) is sync


def test_a_tracing_tool_s_class_stays_in_front_of_ours() -> None:
    class Traced(Stream[ChatCompletionChunk]):
        def __stream__(self):
            yield from super().__stream__()

    combined = sdk.localise(Traced)
    assert combined.__mro__.index(Traced) < combined.__mro__.index(sdk.LocalStream) < combined.__mro__.index(Stream)
    assert combined.__name__ == "Traced"


def test_the_http_family_is_the_sdk_s_own() -> None:
    assert issubclass(sdk.LocalHttpClient, sdk.httpx.Client)
    sync, asynchronous = openai.DefaultHttpxClient, openai.DefaultAsyncHttpxClient
    assert issubclass(sync, sdk.httpx.Client) and issubclass(asynchronous, sdk.httpx.AsyncClient)


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_our_signatures_accept_every_stock_constructor_argument(make: type) -> None:
    stock = inspect.signature(openai.OpenAI.__init__ if make is LocalOpenAI else openai.AsyncOpenAI.__init__)
    given: dict[str, Any] = {
        "api_key": "sk-1",
        "timeout": 3.0,
        "max_retries": 0,
        "default_headers": {"x-a": "1"},
        "default_query": {"q": "1"},
        "organization": "o",
        "project": "p",
        "webhook_secret": "w",
        "base_url": "https://api.openai.com/v1",
        "websocket_base_url": "wss://api.openai.com/v1",
        "_strict_response_validation": True,
    }
    left = set(stock.parameters) - set(given) - {"self", "http_client"}
    client = make(**{name: given[name] for name in given if name in stock.parameters}, **dict.fromkeys(left))
    assert (client.api_key, client.organization, client.max_retries, client.timeout) == ("sk-1", "o", 0, 3.0)
    assert client.base_url.host == "localhost"


@pytest.mark.skipif(importlib.util.find_spec("httpx2") is None, reason="nothing can import it")
def test_no_model_s_thread_is_the_first_to_import_httpx2() -> None:
    """huggingface_hub does; the SDK's 2.x line fails with what is half imported, in a constructor on another thread."""
    code = "import sys, localai_shim.sdk.private; sys.exit(not hasattr(sys.modules.get('httpx2'), 'Timeout'))"
    subprocess.run([*python(), "-c", code], check=True)
