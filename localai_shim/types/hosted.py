"""Hooks, which serve tools that OpenAI hosts with the caller's own code, and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol, TypeAlias


class Picture(Protocol):
    """An image that can be written to a file, such as `PIL.Image.Image`."""

    def save(self, fp: IO[bytes], format: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a web search.

    Args:
        url: Address of the page, which answers can cite.
        title: Title of the page. Defaults to none.
        text: What the model reads of the page. Defaults to nothing.

    Example:
        >>> from localai_shim import SearchResult
        >>> def search(query, **options):
        ...     return [SearchResult("https://almanac.example/paris", "Almanac", "Rain in Paris.")]
        >>> search("weather")[0].title
        'Almanac'
    """

    url: str
    title: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class CodeFile:
    """File that code has written.

    Args:
        name: Its name, from which its type is guessed.
        url: Address of its content, such as a `data:` URL. Defaults to none.

    Example:
        >>> from localai_shim import CodeFile
        >>> CodeFile("plot.png", "data:image/png;base64,iVBORw0KGgo=").name
        'plot.png'
    """

    name: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class CodeResult:
    """Result of running code.

    Args:
        logs: What the code printed. Defaults to nothing.
        files: Files that it has written. Defaults to none.

    Example:
        >>> from localai_shim import CodeFile, CodeResult
        >>> def run(code, container):
        ...     return CodeResult("done", [CodeFile("table.csv")])
        >>> run("print('done')", "cntr_1").logs
        'done'
    """

    logs: str = ""
    files: Sequence[CodeFile] = ()


@dataclass(frozen=True, slots=True)
class ImageResult:
    """Image that was generated.

    Args:
        image: `PIL.Image.Image`, the bytes of an image file, or these as a base64 string or a `data:` URL.
        revised_prompt: Prompt that was used, if it differs from the model's. Defaults to none.

    Example:
        >>> from PIL import Image
        >>> from localai_shim import ImageResult
        >>> def draw(prompt, **options):
        ...     return ImageResult(Image.new("RGB", (64, 64), "red"), revised_prompt=f"{prompt}, in red")
        >>> draw("a square").revised_prompt
        'a square, in red'
    """

    image: bytes | str | Picture
    revised_prompt: str | None = None


Found: TypeAlias = Iterable[SearchResult | Mapping[str, str]]
Ran: TypeAlias = CodeResult | Mapping[str, object] | str
Drawn: TypeAlias = ImageResult | bytes | str | Picture | Mapping[str, object]


class WebSearchHook(Protocol):
    """Object that serves `web_search`: its method `search` takes the query, and options by name.

    Example:
        >>> from localai_shim import LocalOpenAI, SearchResult, WebSearchHook
        >>> class Search:
        ...     def search(self, query: str) -> list[SearchResult]:
        ...         return [SearchResult("https://almanac.example", text="Rain.")]
        >>> hook: WebSearchHook = Search()
        >>> client = LocalOpenAI(hosted_tools={"web_search": hook})
        >>> client.close()
    """

    def search(self, query: str, /, *args: Any, **options: Any) -> Found | Awaitable[Found]: ...


class CodeInterpreterHook(Protocol):
    """Object that serves `code_interpreter`: its method `run` takes the code, the container, and options by name.

    Example:
        >>> from localai_shim import CodeInterpreterHook, CodeResult, LocalOpenAI
        >>> class Sandbox:
        ...     async def run(self, code: str, container: str) -> CodeResult:
        ...         return CodeResult("42")
        >>> hook: CodeInterpreterHook = Sandbox()
        >>> client = LocalOpenAI(hosted_tools={"code_interpreter": hook})
        >>> client.close()
    """

    def run(self, code: str, container: str, /, *args: Any, **options: Any) -> Ran | Awaitable[Ran]: ...


class ImageGenerationHook(Protocol):
    """Object that serves `image_generation`: its method `draw` takes the prompt, and options by name.

    Example:
        >>> from PIL import Image
        >>> from localai_shim import ImageGenerationHook, LocalOpenAI
        >>> class Painter:
        ...     def draw(self, prompt: str, size: str = "auto") -> Image.Image:
        ...         return Image.new("RGB", (64, 64), "red")
        >>> hook: ImageGenerationHook = Painter()
        >>> client = LocalOpenAI(hosted_tools={"image_generation": hook})
        >>> client.close()
    """

    def draw(self, prompt: str, /, *args: Any, **options: Any) -> Drawn | Iterator[Drawn] | Awaitable[Drawn]: ...


Hook: TypeAlias = Callable[..., Any] | WebSearchHook | CodeInterpreterHook | ImageGenerationHook
"""A value of a client's `hosted_tools`."""
