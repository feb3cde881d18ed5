"""Replacement of OpenAI for all that runs in a program."""

from __future__ import annotations

import atexit
from typing import Unpack

from ..client.arguments import ClientArguments
from ..client.local import AsyncLocalOpenAI, LocalOpenAI
from ..options import ModelPath
from ..sdk import private as sdk
from . import network
from .clients import AnyLocalOpenAI, ReplacedClients


class Replacement:
    """A local model instead of OpenAI, until `undo`, the end of a `with` block, or the process ends.

    Args:
        client: what answers.
        is_owned: the client was made for this, and is closed with it.

    Attributes:
        client: what answers.
    """

    def __init__(self, client: AnyLocalOpenAI, *, is_owned: bool) -> None:
        self.client = client
        self._is_owned, self._is_active = is_owned, True
        self._clients = ReplacedClients(client, whole_program=True)
        network.begin(network.refuse_openai, first=True)
        atexit.register(self._close)

    def __enter__(self) -> AnyLocalOpenAI:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Let the SDK's clients be what they are again, and close the client if it was made for this."""
        if not self._is_active:
            return
        self._is_active = False
        self._clients.undo()
        network.end(network.refuse_openai)
        atexit.unregister(self._close)
        self._close()

    def _close(self) -> None:
        if self._is_owned:
            self.client._runtime.close()


def replace_openai(
    model: ModelPath | LocalOpenAI | AsyncLocalOpenAI | None = None, **options: Unpack[ClientArguments]
) -> Replacement:
    """Answer all requests of the OpenAI SDK in this process with a local model, from this call on.

    This covers every client that the program makes, whichever name or module it has the class from (`OpenAI`,
    `AzureOpenAI`, ...), the functions of the module (`openai.chat.completions.create`), and clients that were made
    before. `OPENAI_API_KEY` becomes a placeholder. Websockets and other libraries' requests to OpenAI raise an error.

    As a plain call it lasts until the process ends, or until `undo()` of what is returned. With `with` it lasts as
    long as the block, which gets the local client. Calls may be nested and may overlap: the last one counts.

    Args:
        model: Model of `LocalOpenAI`, or a local client. Defaults to the bundled model.
        **options: Arguments of `LocalOpenAI`, if `model` is not a client.

    Raises:
        BackendMissingError: MLX has no back end. The message names the extra to install.
        FileNotFoundError: `model` or `adapter_path` does not exist.
        TypeError: Unknown argument, a client that is not local, or options with a client.
        ValueError: Conflicting arguments.

    Example:
        >>> import openai
        >>> from localai_shim import replace_openai
        >>> with replace_openai():  # or replace_openai("mlx-community/Qwen3-8B-4bit")
        ...     openai.OpenAI().responses.create(model="gpt-4o", input="What is 2 + 3?", temperature=0).output_text
        '2 + 3 = 5.'
    """
    if isinstance(model, LocalOpenAI | AsyncLocalOpenAI):
        if options:
            given = ", ".join(map(repr, options))
            raise TypeError(f"replace_openai() got a client, so pass these arguments to the client instead: {given}")
        return Replacement(model, is_owned=False)
    if isinstance(model, sdk.OpenAI | sdk.AsyncOpenAI):
        raise TypeError(
            f"replace_openai() needs a local client, and {type(model).__name__} would ask a server: pass LocalOpenAI() "
            "or a model"
        )
    return Replacement(LocalOpenAI(model, **options), is_owned=True)
