"""The clients' own arguments. Each is one field here: what it does, and the values that it takes.

Signatures, docstrings, the table in docs/parameters.md and the checks follow from these; engines and loaders get them
as they are. None stands for an option's default.
"""

import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypedDict, cast, get_args, get_type_hints

from .media import MediaRules
from .types import EngineLike, Hook

ModelPath = str | os.PathLike[str]
PerModel = str | Mapping[str, str]
"""For one model, or by the names in `models`."""
KEEP_ALIVE_SECONDS = 60.0
SPECULATION = "auto"
DRAFT_TOKENS, MAX_DRAFT_TOKENS = 7, 15
ALONE = ("adapter_path", "draft_model", "cache_dir")  # without effect on a model in several processes
LOCAL_MODELS = "LOCALAI_SHIM_LOCAL_MODELS"
"""Variable that turns the search for models of other programs on and off."""
_OFF, _ON = ("0", "false", "no", "off"), ("", "1", "true", "yes", "on")
_ADAPTER_FILES = ("adapter_config.json", "adapters.safetensors")  # as mlx-lm names them


class Option(NamedTuple):
    """Description of an argument, with the values that it takes."""

    doc: str
    default: object = None
    least: int | None = None
    """The smallest number; None: any above 0."""
    choices: tuple[int | str, ...] = ()


MODEL = Option(
    "Folder of an MLX or Hugging Face checkpoint, GGUF file, Hugging Face Hub ID, or name of a model that LM Studio, "
    "Ollama, or another program has on this machine, such as `qwen3:8b`. `None` loads the bundled small model, "
    "`builtin:vision` the bundled vision model. Serves requests for any model name."
)


class LoadOptions(TypedDict, total=False):
    """Settings for loading a model."""

    revision: Annotated[
        PerModel | None,
        Option(
            "Branch, tag, or commit of a model on the Hugging Face Hub. Defaults to `main`. With `models`, may be a "
            "mapping by model name. Raises `ValueError` for folders and files. `draft_model` and `adapters` always use "
            "`main`."
        ),
    ]
    context_length: Annotated[
        int | None, Option("Maximum number of prompt and output tokens. Defaults to the model's config.")
    ]
    adapter_path: Annotated[
        ModelPath | None,
        Option("Folder of LoRA adapters in mlx-lm's format. Raises `FileNotFoundError` if it holds none."),
    ]
    trust_remote_code: Annotated[bool, Option("Run Python code from the model's folder. Defaults to `False`.", False)]
    kv_bits: Annotated[
        int | None,
        Option(
            "Quantize the KV cache to 4 or 8 bits. Sliding-window layers and recurrent states are not quantized; "
            "models that have only these are rejected.",
            choices=(4, 8),
        ),
    ]
    kv_group_size: Annotated[
        int | None, Option("Group size for `kv_bits`: 32, 64 (default), or 128.", choices=(32, 64, 128))
    ]
    text_only: Annotated[
        bool, Option("Load only the language model of a multimodal checkpoint. Defaults to `False`.", False)
    ]
    tensor_parallel: Annotated[
        int | None,
        Option(
            "Number of processes to split the model over; the client starts the others. Text models only. Cannot be "
            "combined with `adapter_path`, `draft_model`, or `cache_dir`. See docs/tensor-parallel.md."
        ),
    ]
    tool_format: Annotated[
        PerModel | None,
        Option(
            "Tool-call format, such as `'hermes'` or `'llama3_json'`, or `'none'`. With `models`, may be a mapping by "
            "model name. Defaults to the format detected from the chat template."
        ),
    ]
    reasoning_format: Annotated[
        PerModel | None,
        Option(
            "Reasoning format, such as `'think'`; `'none'` leaves reasoning in the content. With `models`, may be a "
            "mapping by model name. Defaults to the format detected from the chat template."
        ),
    ]


class SearchOptions(TypedDict, total=False):
    """Settings for finding a model."""

    local_models: Annotated[
        bool | None,
        Option(
            "Search the folders of LM Studio, the Hugging Face cache, Ollama, llama.cpp, omlx, and Jan before asking "
            "the Hugging Face Hub. Defaults to `True`, or to `False` if `LOCALAI_SHIM_LOCAL_MODELS` is `0`. See "
            "docs/models.md."
        ),
    ]
    offline: Annotated[
        bool | None,
        Option(
            "Never ask the Hugging Face Hub: models, draft models, and adapters must be on this machine. Defaults to "
            "`False`, or to `True` if `HF_HUB_OFFLINE` is `1`."
        ),
    ]


class RunOptions(TypedDict, total=False):
    """Settings for an engine that runs a model."""

    max_rows: Annotated[
        int | None, Option("Maximum number of sequences decoded together (64 by default); further ones wait.")
    ]
    max_stall: Annotated[
        float | None,
        Option(
            "Approximate maximum time in seconds that a new prompt delays running sequences (0.05 by default), or 2.5 "
            "decode steps if these take longer."
        ),
    ]
    max_queue: Annotated[
        int | None,
        Option(
            "Maximum number of waiting sequences (16,384 by default). Beyond it, requests raise `RateLimitError` "
            "immediately and are not retried. A single request with more choices than that raises `BadRequestError`.",
            least=0,
        ),
    ]
    memory_limit: Annotated[
        int | None,
        Option(
            "Maximum bytes for weights, running sequences, prefix cache, and MLX's free buffers. By default, all "
            "models share 90% of GPU memory, or MLX's own limit on the CPU back end. Loading fails if fewer than 256 "
            "tokens of context fit."
        ),
    ]
    prefix_cache_bytes: Annotated[
        int | None,
        Option(
            "Maximum bytes of cached prompts and turns; 0 disables the cache. Defaults to 25% of the GPU memory left "
            "by the weights, or 10% of system memory without a GPU.",
            least=0,
        ),
    ]
    vision_cache_bytes: Annotated[
        int | None,
        Option(
            "Maximum bytes of cached image, video, and audio features; with 0 they are kept only while a prompt needs "
            "them. Defaults to 1/8 of the default `prefix_cache_bytes`.",
            least=0,
        ),
    ]
    cache_dir: Annotated[
        ModelPath | None,
        Option(
            "Folder that keeps the prefix cache after the process exits (up to 10 GiB). Can be shared by processes."
        ),
    ]
    speculation: Annotated[
        Literal["auto", "off"] | None,
        Option(
            "`'auto'` (default) uses speculative decoding where it is faster; `'off'` never does. Output is the same.",
            choices=("auto", "off"),
        ),
    ]
    draft_model: Annotated[
        ModelPath | None,
        Option(
            "Small model with the same vocabulary, or an MTP head, for speculative decoding: folder, GGUF file, or Hub "
            "ID. Implies `speculation='auto'`; raises `ValueError` with `speculation='off'`. Loading fails if the "
            "vocabulary differs, the draft model has recurrent layers, or `model` takes only one token at a time."
        ),
    ]
    draft_tokens: Annotated[int | None, Option("Maximum number of draft tokens per step, up to 15 (7 by default).")]


class EngineOptions(RunOptions, total=False):
    """Settings for an engine, with those that clients do not decide."""

    prefill_chunk: int
    """Most prompt tokens per forward pass."""
    cache_dir_bytes: int
    """Most bytes in `cache_dir`."""


class ModelOptions(LoadOptions, EngineOptions, total=False):
    """Settings for loading and running a model: clients of a model with equal ones share one engine."""


class _Models(TypedDict, total=False):
    models: Annotated[
        Mapping[str, ModelPath | None] | None,
        Option("Models by name, each loaded on first use. Requests for other names raise `NotFoundError`."),
    ]
    engine: Annotated[EngineLike | None, Option("Running engine to use. The client does not close it.")]


class LocalOptions(_Models, LoadOptions, SearchOptions, RunOptions, total=False):
    """All that a client has beyond the SDK's own arguments, except `model`."""

    adapters: Annotated[
        Mapping[str, ModelPath] | None,
        Option(
            "LoRA adapters by name (folders or Hub IDs, mlx-lm or PEFT format), each loaded on first use. A request "
            "selects one with `model=name` or `extra_body={'adapter': name}`; one batch can mix them. Cannot be "
            "combined with `models`, `engine`, or `tensor_parallel`. See docs/adapters.md."
        ),
    ]
    embedding_model: Annotated[
        ModelPath | None,
        Option(
            "Model that embeds the files of vector stores: a name in `models`, or a model as for `model`. Defaults to "
            "`model`, or to the first of `models` that only embeds, or else to the first. See docs/vector-stores.md."
        ),
    ]
    hosted_tools: Annotated[
        Mapping[str, Hook | Mapping[str, object]] | None,
        Option(
            "Your `web_search`, `code_interpreter`, and `image_generation`, and MCP servers. See docs/hosted-tools.md "
            "and docs/mcp.md."
        ),
    ]
    allow_remote_images: Annotated[
        bool,
        Option(
            "Allow requests to load images, video, audio, and files from `http://` and `https://` URLs, and to use "
            "MCP servers by URL, except private addresses. Defaults to `False`, which rejects such URLs.",
            False,
        ),
    ]
    allow_local_files: Annotated[
        ModelPath | None,
        Option("Folder from which requests may load files by path or `file://` URL. Defaults to none."),
    ]
    store: Annotated[
        ModelPath | None,
        Option(
            "SQLite file for responses, conversations, stored completions, files, batches, and vector stores. Can be "
            "shared by clients and processes. By default, up to 256 MiB is kept in memory for this client and its "
            "copies; a chain of `previous_response_id` in use is kept even if it is larger."
        ),
    ]
    progress: Annotated[
        bool | None,
        Option(
            "Show a progress bar on stderr while downloading and loading. Defaults to `True` on a terminal. "
            "`HF_HUB_DISABLE_PROGRESS_BARS` always disables it."
        ),
    ]
    record_timeline: Annotated[
        bool,
        Option(
            "Record what the engines do for `client.timeline(path)`: the last 65,536 entries of each engine, up to "
            "40 MB. Defaults to `False`. Cannot be used with HTTP clients. See docs/agents.md.",
            False,
        ),
    ]
    switch_interval: Annotated[
        float | None,
        Option(
            "Value for `sys.setswitchinterval`, process-wide and permanent. Unchanged by default; 0.0005 lets the "
            "engine compete better with threads that read sampled streams."
        ),
    ]
    keep_alive: Annotated[
        float,
        Option(
            "Seconds to keep the model loaded after its last client is closed (60 by default); -1 keeps it until exit.",
            KEEP_ALIVE_SECONDS,
        ),
    ]


OWN = {name: hint.__metadata__[0] for name, hint in get_type_hints(LocalOptions, include_extras=True).items()}
"""Name of an argument -> what it does."""
TYPES = get_type_hints(LocalOptions)


def model_options(given: LocalOptions) -> ModelOptions:
    """Collect a client's wishes for loading and running its models; options that are not given are left out.

    Raises:
        FileNotFoundError: `adapter_path` holds no adapters.
        ValueError: one of them is out of range, no number, or has no effect.
    """
    found: dict[str, object] = {}
    for name in (*LoadOptions.__annotations__, *RunOptions.__annotations__):
        value = given.get(name)
        if value is None or value is OWN[name].default:
            continue
        check_option(name, value)
        found[name] = value
    made = cast(ModelOptions, found)
    if "kv_group_size" in made and "kv_bits" not in made:
        raise ValueError("`kv_group_size` has no effect without `kv_bits`: pass `kv_bits=4` or `kv_bits=8` as well")
    drafts = [name for name in ("draft_model", "draft_tokens") if name in made]
    if drafts and made.get("speculation") == "off":
        raise ValueError(f"`{drafts[0]}` has no effect with `speculation='off'`: leave one of them out")
    if (made.get("draft_tokens") or 0) > MAX_DRAFT_TOKENS:
        raise ValueError(f"`draft_tokens` must be at most {MAX_DRAFT_TOKENS}, not {made['draft_tokens']!r}")
    alone = [name for name in ALONE if name in made] if processes(made) > 1 else []
    if alone:
        raise ValueError(f"`{alone[0]}` needs a model that runs in one process: leave it or `tensor_parallel` out")
    if (folder := made.get("adapter_path")) is not None:
        made["adapter_path"] = _adapter(folder)
    if (folder := made.get("cache_dir")) is not None:
        made["cache_dir"] = str(Path(folder).expanduser().absolute())
    return made


class Search(NamedTuple):
    """Places that a model may come from."""

    local: bool = True
    """Folders of other programs on this machine."""
    offline: bool = False
    """Only from this machine."""


ANYWHERE = Search()


def search_options(given: LocalOptions) -> Search:
    """Collect the places from which a client's models may come.

    Raises:
        ValueError: an option, or the variable, is neither true nor false.
    """
    local, offline = given.get("local_models"), given.get("offline")
    for name, value in (("local_models", local), ("offline", offline)):
        if value not in (None, True, False):
            raise ValueError(f"`{name}` must be True, False or None, not {value!r}")
    return Search(_searches_by_default() if local is None else bool(local), bool(offline))


def _searches_by_default() -> bool:
    value = os.environ.get(LOCAL_MODELS, "").strip().lower()
    if value in (*_OFF, *_ON):
        return value in _ON
    raise ValueError(f"the variable {LOCAL_MODELS} must be 1 or 0, not {value!r}")


def processes(options: LoadOptions) -> int:
    """Number of processes that a model is spread over."""
    return options.get("tensor_parallel") or 1


def records_timeline(given: LocalOptions) -> bool:
    """True if a client records a timeline from its start."""
    if (value := given.get("record_timeline")) not in (None, False, True):
        raise ValueError(f"`record_timeline` must be True or False, not {value!r}")
    return bool(value)


def media_rules(given: LocalOptions) -> MediaRules:
    """Collect the sources from which a client's requests may take media.

    Raises:
        FileNotFoundError: `allow_local_files` is not a folder.
    """
    folder = given.get("allow_local_files")
    if folder is not None:
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise FileNotFoundError(f"`allow_local_files`: there is no folder '{os.fspath(folder)}'.")
        folder = str(path.resolve())
    return MediaRules(remote=bool(given.get("allow_remote_images")), folder=folder)


def check_names(given: LoadOptions | EngineOptions) -> None:
    """Refuse options that do not exist: making a TypedDict checks nothing at run time.

    Raises:
        TypeError: names those.
    """
    unknown = sorted(given.keys() - ModelOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"there are no such options: {', '.join(unknown)}")


def check_option(name: str, value: object) -> None:
    """Refuse a number or a choice that an option does not have. Raises ValueError."""
    option, kinds = OWN[name], get_args(TYPES[name])
    if int in kinds or float in kinds:
        number = check_number(name, value, whole=float not in kinds)
        if option.least is None and number <= 0:
            raise ValueError(f"`{name}` must be > 0, got {value!r}.")
        if option.least is not None and number < option.least:
            raise ValueError(f"`{name}` must be >= {option.least}, got {value!r}.")
    if option.choices and value not in option.choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, option.choices))}, not {value!r}")


def check_number(name: str, value: object, *, whole: bool = False) -> Real:
    """Refuse what is not a number, NaN included; returns it.

    Args:
        name: of the argument.
        whole: it has to be an integer.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, Integral if whole else Real) and not isinstance(value, bool) and value == value:
        return value
    raise ValueError(f"`{name}` must be {'an integer' if whole else 'a number'}, not {value!r}")


def _adapter(path: ModelPath) -> str:
    """The real path of a folder of LoRA adapters.

    Raises:
        FileNotFoundError: it is none.
    """
    folder = Path(path).expanduser()
    missing = [name for name in _ADAPTER_FILES if not (folder / name).exists()]
    if not folder.is_dir():
        raise FileNotFoundError(f"`adapter_path`: there is no folder '{os.fspath(path)}'.")
    if missing:
        raise FileNotFoundError(
            f"`adapter_path`: '{os.fspath(path)}' holds no LoRA adapters: it has no {' and no '.join(missing)}."
        )
    return str(folder.resolve())
