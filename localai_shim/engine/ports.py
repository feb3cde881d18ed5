"""Ports: what the engine asks of a model, and of the machine and the libraries that it runs on.

The engine imports none of them. `models/` and `backends/` fill the ports; `runtime/` connects them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from ..media import MediaSpan as MediaSpan
from ..media import ProcessedMedia as ProcessedMedia
from ..types import Adapter, LoadedModel, NewWeights, Product, Prompt, Task
from .cache_contents import Contents, LayerCache, RowCache, Upstream

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

    from .mirror.journal import Journal


LogitsT = TypeVar("LogitsT")

# -- one pass --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Features that a model's tower made of one item: rows at the places of its placeholders."""

    rows: mx.array
    """`[n, hidden]`, evaluated."""
    deep: tuple[mx.array, ...] = ()
    """`[n, hidden]` each, for models that add such rows in their first layers (deepstack)."""

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + sum(int(rows.nbytes) for rows in self.deep)


@dataclass(frozen=True, slots=True)
class StepInput:
    """One forward pass: k tokens of each row. Decode is k = 1; a chunk of a prompt is all of its tokens."""

    tokens: mx.array
    """`[rows, k]` int32."""
    layers: RowCache
    """The rows' caches, an object per layer: the pass writes what its tokens leave into them."""
    counts: Sequence[int] | None = None
    """Number of a row's k tokens that count, per row: the others are padding on the right, and the caller of the
    pass takes what they leave out of the caches. None: all count.
    """
    state: Sequence[object] | None = None
    """States that `Model.row_state` made, one for each row or None. None: it made none for any row."""
    media: Sequence[tuple[MediaSpan, Features]] = ()
    """Of a chunk of one row's prompt: the items of which placeholders are among its tokens, with their features."""
    adapters: Sequence[Adapter | None] | None = None
    """Adapters of the rows, one for each or None. None: no row has one."""
    ends: bool = False
    """Its tokens end their rows' prompts: `Model.prefill` returns the logits after the last one that counts of each."""
    hidden: bool = False
    """Its hidden states are wanted; see `Model.gives_hidden`."""
    starts: int | mx.array | None = None
    """First position of all rows, or `[rows]` of each: what their caches give, and nothing changes. None: unknown."""


class PassOutput(NamedTuple, Generic[LogitsT]):
    """The result of one forward pass. Lazy, except what a pass that is waited for has computed."""

    logits: LogitsT
    """float32."""
    hidden: mx.array | None = None
    """`[rows, k, width]`: of each token, what the model's head makes its logits from; None: they were not wanted."""


class Reading(Protocol):
    """A text that is read in pieces."""

    done: int
    """Tokens that were read."""

    @property
    def left(self) -> int:
        """Tokens to read."""

    def run(self, most: int) -> None:
        """Read the next tokens, `most` at most, and wait for them."""

    def result(self) -> mx.array:
        """`[1, dimensions]`, lazy, once nothing is left."""


class TextHead(Protocol):
    """Computes numbers of whole texts, for one kind of work."""

    @property
    def settings(self) -> object:
        """Settings of the model for it, which endpoints read; see `LoadedModel.settings`."""

    def __call__(self, texts: Sequence[Sequence[int]], skip: int = 0, /) -> mx.array:
        """Numbers of each text, which do not depend on the others: `[texts, dimensions]` float32. Lazy.

        Vectors have length 1; scores of pairs are from 0 to 1, `[pairs, 1]`.

        Args:
            texts: token ids.
            skip: tokens at the beginning of each that are a prompt's.
        """

    def begin(self, text: Sequence[int], skip: int = 0, /) -> Reading | None:
        """A text that is read in pieces; None if the model has to see all of it in one pass."""


# -- models ----------------------------------------------------------------------------------------------------------


class Encoder(LoadedModel, Protocol):
    """A model that the engine runs, to generate, embed or rank. Methods that compute run on the engine thread only."""

    context_length: int | None
    """The engine lowers it where memory holds less."""

    @property
    def weight_bytes(self) -> int: ...

    @property
    def heads(self) -> Mapping[Task, TextHead]:
        """Heads for the kinds of work that it serves, except for generating text."""

    @property
    def adapter_bytes(self) -> int:
        """Bytes of the adapters that were added."""

    def read_weights(self, weights: NewWeights) -> Callable[[], None]:
        """Read other weights; returns what has the model compute with them from then on, under another fingerprint.

        Raises:
            ModelLoadError: they do not fit; names the tensors and the shapes. Nothing has changed.
        """

    def add_adapter(self, adapter: Adapter, products: Mapping[str, Product]) -> Iterator[None]:
        """Load an adapter piece by piece, with passes in between; once it is through, passes may name the adapter.

        Args:
            adapter: what passes name.
            products: its changes, by the layers' names.

        Raises:
            ModelLoadError: it does not fit; names the file, the tensor and the shapes. Nothing has changed.
        """

    def remove_adapter(self, adapter: Adapter) -> Iterator[None]:
        """Forget an adapter piece by piece, with passes in between that do not name it; it may be gone."""

    def adapted(self, adapters: Sequence[Adapter | None]) -> AbstractContextManager[None]:
        """Have the rows of a pass that is built within this use these adapters; one for all rows, if it is one."""


class Model(Encoder, Protocol):
    """A model that generates text. It may read images, videos and sounds as well."""

    query_heads: int
    """Heads of an attention layer; 1 if the config does not say."""
    samples_on_device: bool
    """Tokens are sampled where the logits are. False: by NumPy, which is faster on a CPU."""
    one_token: bool
    """Rows that decode take one token per step, whatever a trial with text says."""

    @property
    def end_tokens(self) -> int:
        """Most tokens of a pass that should end a prompt with its last token's logits: longer ones take more time so
        than they save. 0: it cannot give these.
        """

    def new_cache(self) -> RowCache:
        """An empty cache for one row: an object per layer."""

    @property
    def gives_hidden(self) -> bool:
        """Passes return hidden states if these are wanted; else they return None for them."""

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        """Run tokens into the layers, and wait for it unless told not to.

        Its logits are those after each row's last token that counts, `[rows, vocabulary]`; None unless `step.ends`.
        """

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        """Run tokens; the logits are those after each token, `[rows, k, vocabulary]`.

        Lazy for one token of each row, or where `samples_on_device`: such a step is built ahead. Else some of it may be
        computed already.
        """

    # -- what only models with media have -----------------------------------------------------------------------

    def embed(self, media: ProcessedMedia) -> Features:
        """Run the tower over one item, and wait for it."""

    def row_state(self, prompt: Prompt) -> object | None:
        """Make what prefill and decode of a prompt need with its tokens and features, such as positions; None:
        nothing, as for text in all models but those that see all of a prompt at once.

        Runs no vision encoder, and nothing of it is kept on the model. All rows of the prompt share it, and a preempted
        row prefills its output tokens with it, too.
        """

    def first_pass(self, prompt: Prompt) -> int:
        """Tokens at a prompt's beginning that must run in one pass; 0: it may be run in any pieces.

        What a token leaves may then depend on later ones of the same item; or, where these are all but the last one,
        which runs with the decode batch, on the whole prompt.
        """


# -- the machine and the libraries -----------------------------------------------------------------------------------


class CacheClasses(Protocol):
    """The libraries' classes of rows' caches: reading what one holds of a layer, and making one."""

    def read(self, layer: LayerCache, /) -> Contents | None:
        """The contents of one layer, without copying; None for a class that is not known."""

    def write(self, contents: Contents, /) -> LayerCache:
        """One layer of a row with these contents."""

    def is_packed(self, layer: LayerCache, /) -> bool:
        """True if a layer holds quantised keys and values."""

    def can_merge(self, layer: LayerCache, /) -> bool:
        """True if rows of this kind of cache can be merged by their class."""

    def as_list(self, layers: Sequence[LayerCache], upstream: Upstream, /) -> Any:
        """A library's list of caches, as one layer."""


class DeviceMemory(Protocol):
    """MLX's memory limits, which all engines of a process share; see `backends/memory.py`."""

    def enter(self, engine: Hashable, /) -> None: ...

    def loaded(self, engine: Hashable, weights: int, /) -> None: ...

    def rest(self, engine: Hashable, /, *, free: int | None = None, clear: bool = False) -> None: ...

    def sleep(self, engine: Hashable, /) -> None: ...

    def work(self, engine: Hashable, /) -> None: ...

    def leave(self, engine: Hashable, /) -> None: ...


class AdapterKernel(Protocol):
    """A kernel for what adapters add to the products of some layers that read the same."""

    def takes(self, x: mx.array, /) -> bool:
        """True if it adds to the products of x; else MLX's products are to be used."""

    def add(self, x: mx.array, ys: Sequence[mx.array], index: mx.array, /) -> list[mx.array]:
        """`y[i] + x[i] @ a[slot of i].T @ b[slot of i]` for each layer.

        Args:
            x: `[..., inputs]`, the tokens of one row behind those of the other.
            ys: `[..., outputs]` each, of the type of x.
            index: `[rows]` uint32, the slots.
        """


class SharedKernel(Protocol):
    """A kernel for the products of layers that read the same."""

    def multiply(self, x: mx.array, /) -> list[mx.array] | None:
        """`[..., outputs]` of each layer, without a bias; None if each layer's own product is to be used."""


class Forms(Protocol):
    """Forms in which the machine computes a model fastest. Models ask for them, and know no machine by name."""

    @property
    def exact_gelu(self) -> Callable[[mx.array], mx.array]:
        """GELU by the error function."""

    def prepare(self, model: nn.Module, memory_limit: int | None = None, /) -> dict[str, int]:
        """Give a model's layers other weights and classes.

        Args:
            model: mlx-lm's or mlx-vlm's; changed in place.
            memory_limit: bytes for the model and its rows together.

        Returns:
            Forms that were applied, and to how many layers or blocks.
        """

    def warm_up(self, model: nn.Module, /) -> Sequence[int]:
        """Compile the kernels of a prepared model's layers.

        Returns:
            Numbers of tokens of the passes that should run once before there are requests.
        """

    def filled(self, tokens: int, /) -> int:
        """The length that a pass of some tokens is filled up to."""

    def filled_rows(self, rows: int, /) -> int:
        """The rows that a pass of some texts is filled up to."""

    def fill(self, tokens: mx.array, layers: RowCache, /) -> tuple[mx.array, int]:
        """A pass's tokens, `[rows, k]`, padded at the right and perhaps with more rows, and the tokens added to each.

        Causal attention never looks at padding; `forget` takes it out of the caches.
        """

    def forget(self, layers: RowCache, padding: int, /) -> None:
        """Take padding out of the caches after a pass."""

    def waited_for(self, now: bool = True, /) -> AbstractContextManager[None]:
        """A pass that this thread builds meanwhile is waited for as soon as it is built; False: it is not."""

    def turned_from(self, starts: int | mx.array | None, /) -> AbstractContextManager[None]:
        """A pass that this thread builds meanwhile has one position per token, from the first ones of its rows on.

        None: it has others, which the model's code computes.
        """

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, cache: object, /) -> mx.array:
        """Attention as a prepared model's layers compute it in a step, `[rows, heads, 1, dim]`.

        Args:
            queries: `[rows, heads, 1, dim]`.
            keys: `[rows, key heads, columns, dim]`.
            values: as the keys.
            cache: the layer's, of which rows may share first tokens.
        """

    def adapter_kernel(self, factors: Sequence[tuple[mx.array, mx.array]], /) -> AdapterKernel | None:
        """The kernel for adapters of layers that read the same; None if there is none.

        Args:
            factors: of each layer, `[slots, rank, inputs]` and `[slots, rank, outputs]`.
        """

    def shared_kernel(self, layers: Sequence[nn.Module], /) -> SharedKernel | None:
        """The kernel for the products of layers that read the same; None if there is none."""


class Machine(Protocol):
    """The machine, and MLX's back end on it."""

    def describe_backend(self) -> str: ...

    def identity(self) -> str:
        """Chip and builds of the system and of MLX. The result of a trial depends on these and the model."""

    def gpu_memory(self) -> int | None:
        """Bytes of memory that MLX may use on a GPU; None where it computes on the CPU."""

    def total_memory(self) -> int:
        """Bytes of the machine's memory."""

    def free_buffers(self) -> int:
        """Bytes of free buffers that MLX should be allowed at least; 0 if any number will do."""

    def memory_pressure(self) -> Literal["normal", "warning", "critical"]:
        """The system's shortage of memory."""

    def is_out_of_memory(self, error: BaseException, /) -> bool:
        """True if an error is for lack of memory, which may be there later."""

    def gpu_fault(self, error: BaseException, /) -> Literal["refuses", "timeout"] | None:
        """Classify an error of the GPU: it refuses all further work of this process, or work took too long."""

    def fuses_attention(self, dim: int, value_dim: int, /, *, half: bool) -> bool:
        """True if attention of many queries is computed without an array of all scores.

        Args:
            dim: numbers in a query and in a key.
            value_dim: numbers in a value.
            half: they have half precision.
        """

    def step_jumps(self, group: int, /) -> Sequence[int]:
        """Numbers of tokens of a row above which a step takes much longer.

        Args:
            group: heads of queries for each head of keys.
        """

    def is_watched(self) -> bool:
        """True if the system ends work of the GPU that takes seconds."""

    def multiplies_packed(self) -> bool:
        """True if attention can read quantised keys and values as they are."""


class Group(Protocol):
    """Processes that compute one model together."""

    def join(self, size: int, /) -> None:
        """Join processes that were started together with this one, if it was; the others do not come back from here.

        Raises:
            EngineClosedError: they are not as many.
        """

    def lead(self, size: int, on_lost: Callable[[], None], /) -> Journal:
        """Have the other processes follow what this thread does, by its journal.

        Args:
            size: processes, this one included.
            on_lost: called once, on another thread, when one of them is lost.

        Raises:
            EngineClosedError: one could not be started, or does not come.
        """


@dataclass(frozen=True, slots=True)
class Host:
    """Parts that the engines of this process run on."""

    machine: Machine
    memory: DeviceMemory
    caches: CacheClasses
    forms: Callable[[], Forms]
    """Of the device that MLX computes on when it is called."""


_connected: Host | None = None


def connect(host: Host) -> None:
    """Have the engines of this process run on this. Connecting the same again changes nothing."""
    global _connected
    _connected = host


def host() -> Host:
    """Parts that were connected.

    Raises:
        RuntimeError: nothing was.
    """
    if _connected is None:
        raise RuntimeError("the engine has no machine and no cache classes: call localai_shim.runtime.host.connect()")
    return _connected
