"""The table of points against the code: a boundary without a point fails."""

from __future__ import annotations

import textwrap

from tests.soak.faults.boundaries import boundaries, in_functions, port_methods
from tests.soak.faults.places import home
from tests.soak.faults.table import POINTS

NAMES = (
    {"loader", "download", "template", "tokenizer", "picture", "grammar compiler", "scheduler", "prefill", "step"}
    | {"sampler", "masks", "detokeniser", "parser", "sink", "consumer", "prefix cache", "disk cache", "store"}
    | {"batch runner", "lane", "tower", "adapter", "out of memory", "full disk", "descriptor limit"}
)
"""The others are in test_machine.py: a clock that jumps, and a limit of threads."""

ELSEWHERE = {
    "backends.": "tried when a model is loaded, where an error is that of `OwnForms.prepare`; see tests/backends",
    "endpoints.hosted.images:_opened": "reads what a hook returns: its item fails; tests/endpoints/hosted",
    "endpoints.hosted.mcp.connections:": "a server fails its list or call only; tests/endpoints/hosted/mcp",
    "endpoints.hosted.running:": "a hook fails its item only; tests/endpoints/hosted",
    "endpoints.vector_stores.embedder:": "a file fails, and no other; tests/endpoints/vector_stores",
    "endpoints.responses.background:Background._start_thread": "threads: test_machine.py",
    "endpoints.turn:Turn": "submits, or is refused, or begins another round; tests/endpoints/turns",
    "state.processes:": "asks the system for processes; tests/state",
    "engine.drafts.draft_model:": "an error turns drafts off; tests/engine/drafts and tests/test_draft_model.py",
    "engine.drafts.head:": "an error turns drafts off; tests/engine/drafts",
    "client.batch_lines:_start": "prepares a line as a call is, and its error is the line's; tests/endpoints/batches",
    "client.changes:compute_arrays": "computes what the caller has not: the error is its own",
    "documents.time_limit:": "a thread that ends the reading of a file; tests/documents/test_pdf.py",
    "engine.threads:_after_fork": "a thread that passes on Ctrl-C; tests/engine/test_threads.py",
    "engine.threads:_interrupt_main": "the same",
    "engine.threads:_stop_all": "the interpreter's end; tests/soak/life",
    "engine.threads:start": "threads: test_machine.py",
    "models.hub:": "lists what was fetched, for the command line and `models.list`; tests/cli",
    "models.speech.": "loading, which fails the model, or a request's own code, which fails it; tests/models/speech",
    "models.sharded:": "several processes; tests/scale/parallel",
    "models.weights:": "`update_weights` changes nothing if it fails; tests/test_weights.py",
    "replacing.": "refuses connections, and reads programs; tests/test_replacing.py and tests/cli/test_run.py",
    "prompt.media.ffmpeg:": "another program; tests/prompt/media/test_ffmpeg.py",
    "prompt.media.remote:": "needs a network; tests/prompt/media/test_remote.py",
    "prompt.media.sounds:": "no model here hears; tests/prompt/media/test_sounds.py",
    "prompt.media.videos:": "no model here watches; tests/prompt/media/test_videos.py",
    "runtime.engines:": "lists models, and a timer's thread: test_machine.py",
    "runtime.served_models:listed": "lists models",
    "runtime.offload:": "threads: test_machine.py",
    "runtime.sources:": "the constructor's own argument; tests/test_options.py",
    "state.schema:": "a store that cannot be opened is the constructor's error; tests/state and test_machine.py",
    "telemetry.": "observers are told of requests and fail none; `Observation._served`, tests/frameworks",
    "threads.greenlets:": "gevent: tests/soak/life/test_gevent.py",
    "threads.system:": "threads: test_machine.py",
    "threads.workers:": "threads: test_machine.py and tests/test_crews.py",
}
"""Beginnings of places without a point, and why."""

ASKED_ELSEWHERE = {
    "Reading": "of embedders that read long texts in pieces; tests/engine/work",
    "Encoder.read_weights": "tests/test_weights.py",
    "Encoder.remove_adapter": "tests/models/adapters",
    "TextHead.begin": "of embedders that read long texts in pieces; tests/engine/work",
    "CacheClasses": "pure functions of libraries' caches; tests/models/test_caches.py",
    "DeviceMemory": "tests/engine/test_injected.py",
    "Machine": "says what there is; tests/backends",
    "Group": "several processes; tests/scale/parallel",
    "AdapterKernel": "a part of a step's graph; tests/models/adapters",
    "SharedKernel": "a part of a step's graph; tests/backends/cuda",
    "Forms": "shapes of passes, and `prepare` and `adapter_kernel`, which have points; tests/backends",
}


def test_each_boundary_of_the_code_has_a_point_or_a_reason() -> None:
    covered = {home(point.place) for point in POINTS} | {point.place for point in POINTS}
    beginnings = (*(each for point in POINTS for each in point.also), *ELSEWHERE)
    lacking = [place for place in boundaries() if place not in covered and not place.startswith(beginnings)]
    assert not lacking, "add a point to table.py"


def test_each_method_of_the_engine_s_ports_has_a_point_or_a_reason() -> None:
    methods = {point.place.rpartition(".")[2] for point in POINTS if point.place.startswith(("models.", "backends."))}
    methods |= {"__call__"}  # `models.heads.pooling:Encoder.__call__`
    asked = [each for each in port_methods() if not each.startswith(tuple(ASKED_ELSEWHERE))]
    lacking = [each for each in asked if each.partition(".")[2] not in methods]
    assert not lacking, "add a point to table.py"


def test_each_boundary_has_a_name_and_no_reason_is_out_of_date() -> None:
    assert {point.boundary for point in POINTS} == NAMES
    found, asked = list(boundaries()), list(port_methods())
    for reason in (*ELSEWHERE, *(each for point in POINTS for each in point.also)):
        assert any(place.startswith(reason) for place in found), reason
    for reason in ASKED_ELSEWHERE:
        assert any(each.startswith(reason) for each in asked), reason


def test_what_crosses_a_boundary_is_found() -> None:
    source = """
        import cv2
        from PIL import Image
        def read(): return [cv2.imread(name) for name in NAMES]
        class Picture:
            def open(self): return open("x")
            def make(self): return Image.new("RGB", (1, 1))
            def size(self): return len(self.data)
    """
    assert in_functions(textwrap.dedent(source), "m") == {"m:read", "m:Picture.open", "m:Picture.make"}
