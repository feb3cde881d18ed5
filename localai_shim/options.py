"""The clients' own arguments. Each is one field here: what it does, and the values that it takes.

Signatures, docstrings, the table in docs/parameters.md and the checks follow from these; engines and loaders get them
as they are. None stands for an option's default.
"""

import os
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast, get_args, get_type_hints

from .media import MediaRules
from .types import EngineLike

ModelPath = str | os.PathLike[str]
PerModel = str | Mapping[str, str]
"""For one model, or by the names in `models`."""
KEEP_ALIVE_SECONDS = 60.0
SPECULATION = "auto"
DRAFT_TOKENS, MAX_DRAFT_TOKENS = 4, 15
MAX_SWITCH_SECONDS = 1.0  # for which whoever holds the GIL could stop an engine
ALONE = ("adapter_path", "draft_model", "cache_dir")  # without effect on a model in several processes
_ADAPTER_FILES = ("adapter_config.json", "adapters.safetensors")  # as mlx-lm names them


class Option(NamedTuple):
    """Description of an argument, with the values that it takes."""

    doc: str
    default: object = None
    least: int | None = None
    """The smallest number; None: any above 0."""
    choices: tuple[int | str, ...] = ()


MODEL = Option(
    "A folder with an MLX or Hugging Face checkpoint, a GGUF file, a hub id, `None` for the small checkpoint in "
    "the package, or `builtin:vision` for its sibling that sees. It serves every model name."
)


class LoadOptions(TypedDict, total=False):
    """Settings for loading a model."""

    revision: Annotated[
        PerModel | None,
        Option(
            "Branch, tag or commit of a model on the Hugging Face Hub, `main` by default; with `models`, by name if "
            "they differ. `ValueError` for a folder or a file. A `draft_model` and `adapters` are those of `main`."
        ),
    ]
    context_length: Annotated[
        int | None, Option("Most tokens of prompt and output together. Absent: what the model's config says.")
    ]
    adapter_path: Annotated[
        ModelPath | None,
        Option("A folder of LoRA adapters, as mlx-lm trains them; `FileNotFoundError` where it holds none."),
    ]
    trust_remote_code: Annotated[bool, Option("Run Python code that the model's folder brings.", False)]
    kv_bits: Annotated[
        int | None,
        Option(
            "Keep keys and values in 4 or 8 bits. Sliding windows and recurrent states stay as they are; a model "
            "without other layers is refused.",
            choices=(4, 8),
        ),
    ]
    kv_group_size: Annotated[
        int | None, Option("Numbers that share a scale then: 32, 64 (default) or 128.", choices=(32, 64, 128))
    ]
    text_only: Annotated[
        bool, Option("Load the language model alone of a checkpoint that also reads images, video or audio.", False)
    ]
    tensor_parallel: Annotated[
        int | None,
        Option(
            "Spread the model's weights over so many processes, which compute each token together: see "
            "docs/tensor-parallel.md. It starts the others itself. Only text, and not with `adapter_path`, "
            "`draft_model` or `cache_dir`."
        ),
    ]
    tool_format: Annotated[
        PerModel | None,
        Option(
            "How the model writes tool calls, such as `'hermes'` or `'llama3_json'`, or `'none'`; with `models`, by "
            "name if they differ. Absent: as its chat template shows."
        ),
    ]
    reasoning_format: Annotated[
        PerModel | None,
        Option("How it writes its reasoning, such as `'think'`; `'none'` leaves all in the content. Absent: likewise."),
    ]


class RunOptions(TypedDict, total=False):
    """Settings for an engine that runs a model."""

    max_rows: Annotated[int | None, Option("Most rows that decode together (64 by default); more wait.")]
    max_stall: Annotated[
        float | None,
        Option("Seconds that a new prompt may keep running rows from their next token (0.05 by default)."),
    ]
    max_queue: Annotated[
        int | None,
        Option(
            "Most rows that wait beyond those (16,384 by default); more get a `RateLimitError`, at once and without "
            "retries. A request whose choices alone are more is a `BadRequestError`.",
            least=0,
        ),
    ]
    memory_limit: Annotated[
        int | None,
        Option(
            "Most bytes for this model's weights, running rows, prefix cache and MLX's free buffers together. By "
            "default models share 0.9 of a GPU's memory, or MLX's own limit on the CPU back end. Where it leaves less "
            "than 256 tokens of context, loading fails."
        ),
    ]
    prefix_cache_bytes: Annotated[
        int | None,
        Option(
            "Most bytes that finished prompts and turns may hold, for later ones to go on from; 0 keeps none. By "
            "default a quarter of what the weights leave of a GPU's memory, a tenth of the machine's otherwise.",
            least=0,
        ),
    ]
    vision_cache_bytes: Annotated[
        int | None,
        Option(
            "Most bytes for what the model's tower made of images, videos and sounds, so that each is run once; 0 "
            "keeps it only while prompts need it. By default an eighth of the default for `prefix_cache_bytes`.",
            least=0,
        ),
    ]
    cache_dir: Annotated[
        ModelPath | None,
        Option("Folder that keeps the prefix cache after the process exits, up to 10 GiB; processes may share it."),
    ]

    speculation: Annotated[
        Literal["auto", "off"] | None,
        Option(
            "Guess tokens and run several of a row in one step where that is faster: `'auto'` (default) or `'off'`. "
            "Answers are the same.",
            choices=("auto", "off"),
        ),
    ]
    draft_model: Annotated[
        ModelPath | None,
        Option(
            "A small model with the same vocabulary, a folder, a GGUF file or a hub id, whose guesses are run as well: "
            "`speculation` is `'auto'` with it. Another vocabulary, recurrent layers, or a `model` that takes one "
            "token at a time fail loading; `ValueError` together with `speculation='off'`."
        ),
    ]
    draft_tokens: Annotated[int | None, Option("Most tokens that it guesses per step: up to 15 (4 by default).")]


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
        Option("Several models by name, each loaded on first use. Other names are not found."),
    ]
    engine: Annotated[EngineLike | None, Option("An engine that runs already and stays the caller's to close.")]


class LocalOptions(_Models, LoadOptions, RunOptions, total=False):
    """All that a client has beyond the SDK's own arguments, but for `model`."""

    adapters: Annotated[
        Mapping[str, ModelPath] | None,
        Option(
            "LoRA adapters by name, folders or hub ids as mlx-lm or PEFT makes them, any of them on any row of a "
            "batch: a request names one as its `model`, or with `extra_body={'adapter': name}`. Each is loaded on "
            "first use; not with `models`, `engine` or `tensor_parallel`. See docs/adapters.md."
        ),
    ]

    allow_remote_images: Annotated[
        bool,
        Option(
            "Fetch the images, video and audio that requests name by `http://` and `https://` URLs, never from private "
            "addresses. Otherwise these are refused, and no request uses the network.",
            False,
        ),
    ]
    allow_local_files: Annotated[
        ModelPath | None,
        Option("A folder whose files requests may name, by `file://` URLs or paths. Absent: none."),
    ]
    store: Annotated[
        ModelPath | None,
        Option(
            "A file (SQLite) that keeps responses, conversations, stored completions, files and batches; several "
            "clients and processes may share it. Absent: the latest 256 MiB of them are kept in memory, for this "
            "client and its copies; a chain of `previous_response_id` is kept whole as long as its last response is, "
            "even if it is larger than that."
        ),
    ]
    progress: Annotated[
        bool | None,
        Option(
            "Show a progress bar on stderr while a model is fetched and loaded: `True` or `False`. Absent: where "
            "stderr is a terminal. `HF_HUB_DISABLE_PROGRESS_BARS` switches it off in any case."
        ),
    ]
    switch_interval: Annotated[
        float | None,
        Option(
            "Seconds for which a thread may keep Python's GIL while others wait for it, in the whole process and from "
            "then on (`sys.setswitchinterval`). Absent: as it is, 0.005 by default. With 0.0005 the engine waits less "
            "for threads that read sampled streams."
        ),
    ]
    keep_alive: Annotated[
        float,
        Option(
            "Seconds for which the model stays loaded after its last client closed (60 by default); -1 keeps it until "
            "the process ends.",
            KEEP_ALIVE_SECONDS,
        ),
    ]


OWN = {name: hint.__metadata__[0] for name, hint in get_type_hints(LocalOptions, include_extras=True).items()}
"""Name of an argument -> what it does."""
TYPES = get_type_hints(LocalOptions)


def model_options(given: LocalOptions) -> ModelOptions:
    """Collect a client's wishes for loading and running its models; what is not given is left out.

    Raises:
        FileNotFoundError: `adapter_path` holds no adapters.
        ValueError: one of them is out of range, no number, or has no effect.
    """
    made: dict[str, Any] = {}
    for name in (*LoadOptions.__annotations__, *RunOptions.__annotations__):
        value = given.get(name)
        if value is None or value is OWN[name].default:
            continue
        _check_option(name, value)
        made[name] = value
    if "kv_group_size" in made and "kv_bits" not in made:
        raise ValueError("`kv_group_size` has no effect without `kv_bits`: pass `kv_bits=4` or `kv_bits=8` as well")
    _check_drafts(made)
    _check_parallel(made)
    if "adapter_path" in made:
        made["adapter_path"] = _adapter(made["adapter_path"])
    if "cache_dir" in made:
        made["cache_dir"] = str(Path(made["cache_dir"]).expanduser().absolute())
    return cast(ModelOptions, made)


def processes(options: LoadOptions) -> int:
    """Number of processes that a model is spread over."""
    return options.get("tensor_parallel") or 1


def set_switch_interval(given: LocalOptions) -> None:
    """Have Python's threads take turns as the client wants, if it says so.

    Raises:
        ValueError: it is no number of seconds above 0.
    """
    seconds = given.get("switch_interval")
    if seconds is not None:
        _check_option("switch_interval", seconds)
        if seconds > MAX_SWITCH_SECONDS:
            raise ValueError(f"`switch_interval` must be at most {MAX_SWITCH_SECONDS:g}, not {seconds!r}")
        sys.setswitchinterval(float(seconds))


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


def _check_drafts(made: Mapping[str, Any]) -> None:
    if "draft_model" in made and made.get("speculation") == "off":
        raise ValueError("`draft_model` has no effect with `speculation='off'`: leave one of them out")
    if "draft_tokens" in made and "draft_model" not in made:
        raise ValueError("`draft_tokens` has no effect without `draft_model`: pass a model that drafts as well")
    if made.get("draft_tokens", 0) > MAX_DRAFT_TOKENS:
        raise ValueError(f"`draft_tokens` must be at most {MAX_DRAFT_TOKENS}, not {made['draft_tokens']!r}")


def _check_parallel(made: Mapping[str, Any]) -> None:
    alone = [name for name in ALONE if name in made] if made.get("tensor_parallel", 1) > 1 else []
    if alone:
        raise ValueError(f"`{alone[0]}` needs a model that runs in one process: leave it or `tensor_parallel` out")


def _check_option(name: str, value: Any) -> None:
    option, kinds = OWN[name], get_args(TYPES[name])
    if int in kinds or float in kinds:
        check_number(name, value, whole=float not in kinds)
        if option.least is None and value <= 0:
            raise ValueError(f"`{name}` must be > 0, got {value!r}.")
        if option.least is not None and value < option.least:
            raise ValueError(f"`{name}` must be >= {option.least}, got {value!r}.")
    if option.choices and value not in option.choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, option.choices))}, not {value!r}")


def check_number(name: str, value: object, *, whole: bool = False) -> None:
    """Refuse what is not a number, NaN included.

    Args:
        name: of the argument.
        whole: it has to be an integer.

    Raises:
        ValueError: it is none.
    """
    known = isinstance(value, Integral if whole else Real)
    if not known or isinstance(value, bool) or value != value:
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
