"""Clients of the SDK that sign in nowhere: arguments of their constructors, and copies that ask for no credentials.

Private names used: the hooks by which a request gets its credentials, and two attributes with what signs in.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import openai

from . import private as sdk

Arguments = dict[str, object]
ClientT = TypeVar("ClientT", bound=sdk.Client)
PLACEHOLDER = "local"
"""An API key and an API version, for clients that have none."""
_REGION = "us-east-1"
_SERVERS = ("provider", "workload_identity", "data_residency")
_AZURE_KEYS = ("api_key", "azure_ad_token", "azure_ad_token_provider")
_BEDROCK_KEYS = (
    "bedrock_token_provider",
    "aws_profile",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_credentials_provider",
)


# -- arguments of constructors --------------------------------------------------------------------------------------


def openai_arguments(given: Mapping[str, object]) -> Arguments:
    """Arguments of `openai.OpenAI`, with a placeholder for a missing key, and without what signs in at a server."""
    made = {name: value for name, value in given.items() if name not in _SERVERS}
    if not made.get("api_key") and (made.get("api_key") is not None or not os.environ.get("OPENAI_API_KEY")):
        made["api_key"] = PLACEHOLDER
    return {**made, "websocket_base_url": sdk.BASE_URL.replace("http", "ws", 1)}


def azure_arguments(given: Mapping[str, object]) -> Arguments:
    """Arguments of `openai.AzureOpenAI`, with placeholders for what neither these nor the environment have."""
    made = dict(given)
    if _lacks(made, *_AZURE_KEYS, variables=("AZURE_OPENAI_AD_TOKEN", "AZURE_OPENAI_API_KEY")):
        made["api_key"] = PLACEHOLDER
    if _lacks(made, "api_version", variables=("OPENAI_API_VERSION",)):
        made["api_version"] = PLACEHOLDER
    if _lacks(made, "azure_endpoint", "base_url", variables=("AZURE_OPENAI_ENDPOINT",)):
        made["azure_endpoint"] = sdk.BASE_URL.removesuffix("/v1/")
    return made


def bedrock_arguments(given: Mapping[str, object]) -> Arguments:
    """Arguments of `openai.BedrockOpenAI`, with a key instead of all other credentials."""
    made = {name: value for name, value in given.items() if name not in _BEDROCK_KEYS}
    made["api_key"] = made.get("api_key") or PLACEHOLDER
    where = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEDROCK_BASE_URL")
    if _lacks(made, "aws_region", "base_url", variables=where):
        made["aws_region"] = _REGION
    return made


def _lacks(given: Arguments, *names: str, variables: tuple[str, ...]) -> bool:
    """True if neither an argument nor a variable of the environment says it."""
    return all(given.get(name) is None for name in names) and not any(os.environ.get(name) for name in variables)


SUBCLASSES: Mapping[type, Callable[[Mapping[str, object]], Arguments]] = {
    openai.AzureOpenAI: azure_arguments,
    openai.AsyncAzureOpenAI: azure_arguments,
    openai.BedrockOpenAI: bedrock_arguments,
    openai.AsyncBedrockOpenAI: bedrock_arguments,
}
"""The SDK's own subclasses of its clients, which look for credentials themselves."""


# -- requests -------------------------------------------------------------------------------------------------------


def signed_out(client: ClientT) -> ClientT:
    """A copy of a client whose requests get no credentials: functions and services that have some are not asked.

    Hooks that a subclass of the program's own replaces are left to it.
    """
    made = copy.copy(client)
    vars(made).update({name: None for name in _SIGNED_IN if name in vars(made)})
    hooks = _ASYNC_HOOKS if isinstance(client, sdk.AsyncOpenAI) else _HOOKS
    stock = {name: hook for name, hook in hooks.items() if _is_stock(getattr(type(client), name))}
    vars(made).update(stock)
    return made


_SIGNED_IN = ("_provider_runtime", "_workload_identity_auth")


def _is_stock(method: Callable[..., object]) -> bool:
    return str(method.__module__).partition(".")[0] == openai.__name__


def _as_it_is(options: sdk.RequestOptions) -> sdk.RequestOptions:
    return options


async def _as_it_is_async(options: sdk.RequestOptions) -> sdk.RequestOptions:
    return options


def _nothing(*_: object) -> None:
    """Neither sign a request nor look for credentials in it."""


async def _nothing_async(_: object) -> None:
    """Async form of `_nothing`."""


_HOOKS: dict[str, Callable[..., object]] = {
    "_prepare_options": _as_it_is,
    "_prepare_request": _nothing,
    "_validate_headers": _nothing,
}
_ASYNC_HOOKS: dict[str, Callable[..., object]] = {
    "_prepare_options": _as_it_is_async,
    "_prepare_request": _nothing_async,
    "_validate_headers": _nothing,
}
