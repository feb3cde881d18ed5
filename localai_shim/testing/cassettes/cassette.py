"""A cassette while it is used: which answer belongs to a request, and what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ...errors import BadRequest, RequestError
from ...threads.system import Lock
from ...types import Json
from .matching import MAX_SHOWN_DIFFERENCES, WITHOUT_EFFECT, Normalize, differences, meaning, nearest, normalizer
from .mcp import without_secrets
from .tape import CassetteError, Interaction, read_cassette, write_cassette

if TYPE_CHECKING:
    import openai

RecordMode = Literal["none", "once", "new_episodes", "all", "rewrite"]
RECORD_MODES = get_args(RecordMode)
Upload = tuple[str, bytes]
"""Name and content of a file."""


class Cassette:
    """A file of recorded answers. Each is played once, in the order of the recording where requests mean the same.

    Args:
        path: the file; it need not exist where something is recorded.
        record_mode: `none` records nothing; `once` only a cassette that does not exist yet; `new_episodes` what it does
            not have; `all` asks for every answer again; `rewrite` does, and forgets what is not asked for.
        source: the client that is asked when something is recorded.
        normalize: how the texts of requests are compared and recorded; see `play_cassette`.

    Attributes:
        misses: what was asked for, is not there, and was not to be recorded.

    Raises:
        CassetteError: the file is not a cassette.
        ValueError: there is no such mode.
    """

    def __init__(
        self,
        path: Path,
        record_mode: RecordMode = "none",
        source: openai.OpenAI | None = None,
        normalize: Sequence[Normalize | None] = (),
    ) -> None:
        if record_mode not in RECORD_MODES:
            raise ValueError(f"`record_mode` is one of {', '.join(RECORD_MODES)}, not {record_mode!r}")
        self.path, self.record_mode, self._source = path, record_mode, source
        self.misses: list[str] = []
        self._records = record_mode != "none" and not (record_mode == "once" and path.exists())
        self._plays = record_mode in ("none", "once", "new_episodes")
        self._interactions = [] if record_mode == "rewrite" else read_cassette(path)
        self._normalize = normalizer(*normalize)
        try:
            requests = [(each.api, without_secrets(each.request)) for each in self._interactions]
            self._meanings = [meaning(api, self._normalize(request)) for api, request in requests]
        except RecursionError:
            raise CassetteError(f"{path} has a request that is nested so deeply that it cannot be compared.") from None
        self._used: set[int] = set()
        self._changed = False
        self._lock = Lock()

    def answer(self, api: str, request: Json, file: Upload | None = None) -> Interaction:
        """Find the interaction that is played for a request.

        Args:
            api: its endpoint.
            request: its body.
            file: that it transcribes.

        Raises:
            RequestError: it is not there, and is not to be recorded.
            openai.APIError: of the client that was asked, when recording.
            RecursionError: it is nested too deeply to be compared.
        """
        try:
            normalized = self._normalize(without_secrets(request))
            wanted = meaning(api, normalized)
        except RecursionError:
            raise
        except Exception as error:
            raise self.refuse(f"{self.path}: `cassette_normalize` failed: {error!r}") from error
        with self._lock:
            found = self._find(wanted)
            if found is not None and self._plays:
                return self._interactions[found]
            if not self._records:
                raise self._miss(wanted)
        try:
            made = self._record(api, request, file)
        except BaseException:
            with self._lock:
                self._used.discard(-1 if found is None else found)  # who tries again gets its place
            raise
        made.request = {name: value for name, value in normalized.items() if name not in WITHOUT_EFFECT}
        with self._lock:
            self._changed = True
            if found is None:
                self._interactions.append(made)
                self._meanings.append(wanted)
                self._used.add(len(self._interactions) - 1)
            else:
                self._interactions[found] = made
        return made

    def save(self) -> None:
        """Write what was recorded since; without that the file stays as it is."""
        with self._lock:
            if self._changed:
                write_cassette(self.path, self._interactions)
                self._changed = False

    def _find(self, wanted: Json) -> int | None:
        """The first interaction of this meaning that was not used yet, which is used now."""
        for index, found in enumerate(self._meanings):
            if found == wanted and index not in self._used:
                self._used.add(index)
                return index
        return None

    def _record(self, api: str, request: Json, file: Upload | None) -> Interaction:
        from .recording import record

        if self._source is None:
            raise BadRequest(f"{self.path} is to be recorded, but there is no client to ask: pass a `source`")
        try:
            return record(self._source, api, request, file)
        except CassetteError as error:
            raise BadRequest(f"{error}.") from error

    def _miss(self, wanted: Json) -> RequestError:
        lines = [f"{self.path} has no answer to this request, and record mode '{self.record_mode}' asks nobody:"]
        lines.append(f"  {wanted['api']}, model {wanted.get('model')!r}")
        times = self._meanings.count(wanted)
        index = nearest(self._meanings, wanted)
        if times:
            lines.append(f"It was recorded {times} time{'s' * (times > 1)}, and all of these were played.")
        elif index is None:
            lines.append("Nothing is recorded there." if self.path.exists() else "There is no such file.")
        else:
            found = differences(self._meanings[index], wanted)
            lines.append(f"The nearest one, request {index + 1} of {len(self._meanings)}, differs in:")
            lines += [f"  {line}" for line in found[:MAX_SHOWN_DIFFERENCES]]
            lines += [f"  and {len(found) - MAX_SHOWN_DIFFERENCES} more"] if len(found) > MAX_SHOWN_DIFFERENCES else []
        mode, what = ("new_episodes", "what is missing") if self.path.exists() else ("once", "it")
        lines.append(f"--record-mode={mode} records {what}.")
        return self.refuse("\n".join(lines))

    def refuse(self, text: str) -> RequestError:
        """An error for the caller, which fails the test as well."""
        self.misses.append(text)
        return RequestError(text, None, "not_in_cassette", 400, "invalid_request_error")
