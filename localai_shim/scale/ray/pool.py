"""Replicas of one model: which there are, which of them take requests, and which one gets the next."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import ray
from ray.actor import ActorHandle as Actor
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from ...options import LocalOptions, ModelPath
from ...stats import DraftCounts, EngineStats, Percentiles
from . import cluster
from .replica import CONTROL, MAX_REQUESTS, Replica
from .routing import Router, Wish

State = Literal["starting", "ready", "lost", "failed", "leaving"]


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """Statistics of one replica, as seen by a client."""

    name: str
    state: State
    """`starting`: it loads its model; `ready`; `lost`: it has died, and Ray restarts it; `failed`: its model could not
    be loaded, and it gets requests only if all others failed, too; `leaving`: it ends after its last request."""
    in_flight: int
    """Requests of this client that are running on the replica."""
    engine: EngineStats | None
    """None if the replica does not answer."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Snapshot of all replicas."""

    total: EngineStats
    """Sum of all replicas that answer; of percentiles and bytes per token, the maximum."""
    replicas: tuple[ReplicaStats, ...]


def summed(stats: Sequence[EngineStats]) -> EngineStats:
    """The sum of several engines' figures."""
    made = EngineStats(running=0, waiting=0, steps=0)
    for each in stats:
        sums: dict[str, Any] = {
            f.name: _plus(f.name, getattr(made, f.name), getattr(each, f.name)) for f in fields(made)
        }
        made = EngineStats(**sums)
    return made


def _plus(name: str, one: Any, other: Any) -> object:
    if "per_token" in name:
        return max(one, other)
    if isinstance(one, Percentiles):
        return Percentiles(*map(max, one, other))
    if isinstance(one, dict):
        return {name: one.get(name, DraftCounts()).plus(*other.get(name, (0, 0))) for name in {**one, **other}}
    if isinstance(one, tuple):
        return tuple(dict.fromkeys((*one, *other)))  # plans are never asked for
    if isinstance(one, str):
        return "; ".join(dict.fromkeys(filter(None, (*one.split("; "), other))))
    return other if one is None else one if other is None else one + other


CHECK_SECONDS = 30.0
"""Seconds in which a client's constructor hears that its options are right; later, requests say what is wrong."""
RETRY_SECONDS = 0.2  # between two looks at a replica that has died
MAX_ENDS = 2
STATS_SECONDS = 5.0  # after which a replica counts as one that does not answer


class ClosedError(RuntimeError):
    """The pool was closed."""


@dataclass
class _Member:
    actor: Actor
    state: State
    ends: int = 0
    """Times in a row that Ray has reported the replica as dead, and not as being restarted."""

    def control(self, method: str) -> Callable[..., ray.ObjectRef]:
        """A method of the replica that does not wait behind requests."""
        return getattr(self.actor, method).options(concurrency_group=CONTROL).remote  # type: ignore[no-any-return]


class Pool:
    """Replicas by name. A handle in another process also has a pool, which neither starts nor ends replicas.

    Args:
        actors: replicas that take requests.
        start: makes one more; None in handles.
        shared_store: they keep responses, files and batches in one file.
    """

    def __init__(
        self, actors: Mapping[str, Actor], start: Callable[[], Actor] | None = None, *, shared_store: bool = False
    ) -> None:
        self._members = {name: _Member(actor, "ready") for name, actor in actors.items()}
        self._start = start
        self._shared_store = shared_store
        self._router = Router(actors, shared_store=shared_store)
        # A stream that the garbage collector finds may end while it is held, on any thread: reentrant, and nothing of
        # Ray's is called meanwhile.
        self._lock = threading.RLock()
        self._scaling = threading.Lock()
        self._changed: Future[None] = Future()
        self._made = 0
        self._is_closed = False
        self._connection = cluster.connection()
        self._calls = 0
        self._idle: Future[None] = Future()
        """Done when the pool is closed and no call waits for Ray."""

    @classmethod
    def start(
        cls, model: ModelPath | None, options: LocalOptions, replicas: int, ray_options: Mapping[str, object]
    ) -> Pool:
        """Start replicas, and wait until one of them says that the options are right.

        Raises:
            FileNotFoundError, TypeError, ValueError: they are not.
        """
        _check_replicas(replicas)
        cluster.join()
        try:
            kind = ray.remote(
                max_restarts=-1, max_concurrency=MAX_REQUESTS, concurrency_groups={CONTROL: 8}, **ray_options
            )(Replica)
            pool = cls({}, partial(kind.remote, model, **options), shared_store=options.get("store") is not None)
        except BaseException:
            cluster.leave()
            raise
        try:
            pool.scale(replicas)
            checks = [member.actor.check.remote() for member in pool._members.values()]
            for done in ray.wait(checks, timeout=CHECK_SECONDS)[0]:
                with contextlib.suppress(RayActorError):
                    ray.get(done)
        except BaseException as error:
            pool.give_up()
            if isinstance(error, RayTaskError):
                raise error.cause from None
            raise
        return pool

    def __len__(self) -> int:
        return len(self._members)

    def wait(self) -> None:
        """Wait until some replica has its model.

        Raises:
            ModelLoadError: it could not be loaded.
        """
        try:
            ray.get(ray.wait([member.control("load")() for _, member in self._listed()])[0])
        except RayTaskError as error:
            raise error.cause from None

    def __reduce__(self) -> tuple[Callable[..., Pool], tuple[object, ...]]:
        with self._lock:
            actors = {name: member.actor for name, member in self._members.items() if member.state != "leaving"}
        return partial(Pool, shared_store=self._shared_store), (actors,)

    # -- requests ----------------------------------------------------------------------------------------------------

    def begin(self, wish: Wish) -> tuple[str, Actor] | Future[None]:
        """The name and the actor of the replica that gets a request; a future that is done when there may be one.

        Raises:
            ClosedError: there will be none.
        """
        self._check_open()
        with self._lock:
            if not self._members:
                raise ClosedError("all replicas have ended")
            failed = all(member.state == "failed" for member in self._members.values())  # each request says why
            ready = {name for name, member in self._members.items() if failed or member.state == "ready"}
            name = self._router.choose(wish, ready)
            if name is None:
                return self._changed
            self._router.begin(name, wish)
            return name, self._members[name].actor

    @property
    def is_connected(self) -> bool:
        """True while calls of Ray may be made for this pool: neither it nor Ray was closed."""
        return not self._is_closed and cluster.connection() == self._connection

    def _check_open(self) -> None:
        if not self.is_connected:
            raise ClosedError("client is closed" if self._is_closed else "Ray was shut down")

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Make `close` wait for a call to Ray, which then fails, before it ends Ray.

        Raises:
            ClosedError: the pool or Ray was closed before.
        """
        with self._lock:
            self._check_open()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._note_idle()

    def _note_idle(self) -> None:
        if self._is_closed and not self._calls and not self._idle.done():
            self._idle.set_result(None)

    def end(self, name: str) -> None:
        """Count a request down."""
        with self._lock:
            self._router.end(name)

    def keep(self, name: str, ids: Iterable[str]) -> None:
        """Note what a replica keeps."""
        with self._lock:
            self._router.keep(name, ids)

    @property
    def is_starting(self) -> bool:
        """True while some replica has its model still to load for the first time."""
        with self._lock:
            return any(member.state == "starting" for member in self._members.values())

    def describe(self) -> str:
        """The replicas in words, for an error's message."""
        with self._lock:
            return ", ".join(f"{name} {member.state}" for name, member in self._members.items())

    # -- replicas ----------------------------------------------------------------------------------------------------

    def scale(self, replicas: int) -> None:
        """Set the number of replicas; replicas that are removed end after their last request."""
        _check_replicas(replicas)
        self._check_open()
        if self._start is None:
            raise RuntimeError("only the client that started the replicas can change how many there are")
        with self._scaling:
            staying = [name for name, member in self._listed() if member.state != "leaving"]
            for _ in range(replicas - len(staying)):
                self._made += 1
                name, member = f"replica-{self._made}", _Member(self._start(), "starting")
                with self._lock:
                    self._members[name] = member
                    self._router.add(name)
                self._watch(name)
            for name in staying[replicas:]:
                self._dismiss(name)

    def _dismiss(self, name: str) -> None:
        with self._lock:
            self._router.remove(name)
            member = self._members[name]
            was_ready, member.state = member.state == "ready", "leaving"
        if was_ready:
            _call_back(member.control("leave")(), weakref.ref(self), name, Pool._gone)
        else:
            ray.kill(member.actor)
            self._gone(name)

    def _gone(self, name: str, error: BaseException | None = None) -> None:
        with self._lock:
            self._members.pop(name, None)
            self._router.remove(name)
            self._notify()

    def lost(self, name: str) -> None:
        """Take note that a replica has died; it takes requests again after Ray has restarted it."""
        with self._lock:
            member = self._members.get(name)
            if member is None or member.state not in ("ready", "failed"):
                return
            member.state = "lost"
            self._router.forget(name)
        self._watch(name)

    def _watch(self, name: str) -> None:
        with self._lock:
            member = self._members.get(name)
        if member is not None and member.state in ("starting", "lost") and self.is_connected:
            _call_back(member.control("load")(), weakref.ref(self), name, Pool._loaded)

    def _loaded(self, name: str, error: BaseException | None) -> None:
        with self._lock:
            member = self._members.get(name)
            if member is None or member.state == "leaving":
                return
            if error is None or isinstance(error, RayTaskError):
                member.state, member.ends = "ready" if error is None else "failed", 0
                self._notify()
                return
            member.ends = member.ends + 1 if isinstance(error, ActorDiedError) else 0
            if member.ends == MAX_ENDS:
                self._gone(name)
                return
        _later(RETRY_SECONDS, weakref.ref(self), partial(Pool._watch, name=name))

    def leaves(self, name: str) -> None:
        """Take note that a replica takes no more requests, because the client that started it dismisses it."""
        with self._lock:
            if name in self._members:
                self._members[name].state = "leaving"
                self._router.remove(name)
                if self._start is None:
                    del self._members[name]

    def _notify(self) -> None:
        changed, self._changed = self._changed, Future()
        changed.set_result(None)

    # -- figures, and the end ----------------------------------------------------------------------------------------

    def ask(self, model: str) -> dict[str, Future[EngineStats]]:
        """Ask all replicas for their figures."""
        if not self.is_connected:
            return {}
        return {name: member.control("stats")(model).future() for name, member in self._listed()}

    def _listed(self) -> list[tuple[str, _Member]]:
        with self._lock:
            return list(self._members.items())

    def stats(self, asked: Mapping[str, Future[EngineStats]]) -> PoolStats:
        """The figures that have come.

        Raises:
            ValueError: there is no such model.
        """
        with self._lock:
            replicas = tuple(
                ReplicaStats(
                    name,
                    member.state,
                    0 if member.state == "leaving" else self._router.running(name),
                    _figures(asked.get(name)),
                )
                for name, member in self._members.items()
            )
        return PoolStats(summed([each.engine for each in replicas if each.engine is not None]), replicas)

    def begin_to_close(self) -> Future[None] | None:
        """End the replicas that this client has started; returns what is to be waited for before `close` is called."""
        connected = self.is_connected
        with self._lock:
            if self._is_closed:
                return None
            self._is_closed = True
            self._notify()
        if connected and self._start is not None:
            for _, member in self._listed():
                with contextlib.suppress(RayError):
                    ray.kill(member.actor)
        with self._lock:
            self._note_idle()
        return None if self._start is None else self._idle

    def give_up(self) -> None:
        """Close a pool that no client got."""
        self.begin_to_close()
        self.close()

    def close(self) -> None:
        """End Ray, if a client has started it and none is left."""
        if self._start is not None:
            self._start = None
            cluster.leave()


def _check_replicas(replicas: int) -> None:
    if not isinstance(replicas, int) or replicas < 1:
        raise ValueError(f"`replicas` must be an integer of 1 or more, not {replicas!r}")


def _figures(asked: Future[EngineStats] | None) -> EngineStats | None:
    if asked is None or not asked.done():
        return None
    error = asked.exception()
    if isinstance(error, RayTaskError) and isinstance(error.cause, ValueError):
        raise error.cause
    return asked.result() if error is None else None


Reference = weakref.ref[Pool]


def _call_back(
    ref: ray.ObjectRef, reference: Reference, name: str, method: Callable[[Pool, str, BaseException | None], None]
) -> None:
    """Call a pool's method when a call to a replica has ended, as long as there is the pool."""

    def call(future: Future[object]) -> None:  # on a thread that Ray's calls wait for
        _later(0.0, reference, lambda pool: method(pool, name, future.exception()))

    ref.future().add_done_callback(call)


def _later(seconds: float, reference: Reference, method: Callable[[Pool], None]) -> None:
    """Call a pool's method on another thread, as long as there is the pool."""

    def call() -> None:
        pool = reference()
        if pool is not None:
            method(pool)

    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
