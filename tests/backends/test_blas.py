"""Which BLAS serves MLX's products on a Linux CPU."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from localai_shim.backends import blas
from tests.cores import all_of_them
from tests.samples import only


class Library:
    """Stands for a shared library: what it exports."""

    def __init__(self, exports: tuple[str, ...], layers: list[int]) -> None:
        for name in exports:
            setattr(self, name, layers.append)


class Linker:
    """Stands for `ctypes.CDLL`; knows only the libraries that a test installs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installed: dict[str, tuple[str, ...]] = {}
        self.loaded: list[tuple[str, bool]] = []
        """Names, and whether for the whole process."""
        self.layers: list[int] = []
        """Argument of `MKL_Set_Threading_Layer`."""
        monkeypatch.setattr(ctypes, "CDLL", self)
        monkeypatch.delenv("MKL_THREADING_LAYER", raising=False)
        monkeypatch.setattr(blas.importlib.metadata, "files", lambda _: [])

    def __call__(self, name: str, mode: int = ctypes.DEFAULT_MODE) -> Library:
        if name not in self.installed:
            raise OSError(f"{name}: cannot open shared object file")
        self.loaded.append((name, mode == ctypes.RTLD_GLOBAL))
        return Library(self.installed[name], self.layers)

    @property
    def chosen(self) -> list[str]:
        return [name for name, everywhere in self.loaded if everywhere]


WHOLE = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
MKL = (*WHOLE, "MKL_Set_Threading_Layer")


@pytest.fixture
def linker(monkeypatch: pytest.MonkeyPatch) -> Linker:
    return Linker(monkeypatch)


def test_mkl_comes_before_openblas_and_openblas_before_blis(linker: Linker) -> None:
    order = ["libmkl_rt.so.3", "libopenblas.so.0", "libblis.so.4"]
    linker.installed = dict.fromkeys(order, WHOLE)
    for name in order:
        linker.loaded.clear()
        blas.load_blas()
        assert linker.chosen == [name]
        del linker.installed[name]


def test_a_library_without_all_of_mlxs_products_is_not_loaded_for_the_process(linker: Linker) -> None:
    linker.installed = {"libopenblas.so.0": ("cblas_sgemm",), "libblis.so.4": WHOLE}
    blas.load_blas()
    assert linker.chosen == ["libblis.so.4"]


def test_without_any_mlxs_own_stays(linker: Linker) -> None:
    blas.load_blas()
    assert linker.chosen == []


def test_the_mkl_wheels_library_is_found_where_pip_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record names files outside site-packages: `<environment>/lib/libmkl_rt.so.N`."""
    site = tmp_path / "lib" / "python3" / "site-packages"
    info = site / "mkl-2026.2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mkl\nVersion: 2026.2.0\n")
    (info / "RECORD").write_text("../../libmkl_core.so.3,,\n../../libmkl_rt.so.3,,\nmkl-2026.2.0.dist-info/RECORD,,\n")
    (tmp_path / "lib" / "libmkl_rt.so.3").touch()
    monkeypatch.syspath_prepend(site)
    first = next(blas._candidates())
    assert Path(first).samefile(tmp_path / "lib" / "libmkl_rt.so.3")


def test_the_mkl_wheels_library_comes_before_the_systems(linker: Linker, monkeypatch: pytest.MonkeyPatch) -> None:
    class File:
        name = "libmkl_rt.so.3"
        locate = staticmethod(lambda: Path("/environment/lib/libmkl_rt.so.3"))

    monkeypatch.setattr(blas.importlib.metadata, "files", lambda name: [File] if name == "mkl" else [])
    linker.installed = dict.fromkeys(["libmkl_rt.so.3", "/environment/lib/libmkl_rt.so.3", "libiomp5.so"], MKL)
    blas.load_blas()
    assert linker.chosen == ["/environment/lib/libmkl_rt.so.3"]


def test_mkl_without_intels_openmp_runs_without_threads(linker: Linker) -> None:
    """It would end the process otherwise: "Cannot load libmkl_intel_thread.so"."""
    linker.installed = {"libmkl_rt.so.3": MKL}
    blas.load_blas()
    assert linker.layers == [blas.MKL_SEQUENTIAL]


def test_mkl_with_intels_openmp_keeps_its_threads(linker: Linker) -> None:
    linker.installed = {"libmkl_rt.so.3": MKL, "libiomp5.so": ()}
    blas.load_blas()
    assert linker.layers == []


def test_who_chose_mkls_threads_keeps_them(linker: Linker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_THREADING_LAYER", "TBB")
    linker.installed = {"libmkl_rt.so.3": MKL}
    blas.load_blas()
    assert linker.layers == []


def python(program: str, **environment: str) -> tuple[str, str]:
    """Output and errors of a program in a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.strip(), done.stderr


FIND = "from localai_shim.backends.machine import blas, require_backend\nrequire_backend()\n"


@functools.cache
def found() -> str:
    """The BLAS of this machine; tests that need one are skipped without."""
    name = os.path.basename(blas.found() or "") if sys.platform == "linux" else ""
    if not name:
        pytest.skip("no BLAS besides MLX's own here")
    return name


def undefined_in(library: Path) -> set[str]:
    """BLAS and LAPACK routines that a library takes from others, read from its own dynamic symbols."""
    nm = subprocess.run(["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True)
    return set(re.findall(r"\bU (cblas_\w+|[a-z0-9]+_)$", nm.stdout, re.MULTILINE))


def test_all_of_mlxs_blas_and_lapack_calls_go_to_the_library_that_was_found() -> None:
    name = found()
    program = FIND + "import mlx.core as mx\nprint(mx.__file__)"
    try:
        out, bindings = python(program, LD_DEBUG="bindings", LD_BIND_NOW="1")
        wanted = undefined_in(Path(out.splitlines()[-1]).parent / "lib" / "libmlx.so")
    except FileNotFoundError:
        pytest.skip("needs binutils")
    lines = re.findall(r"libmlx\.so \[0\] to (\S+) \[0\]: normal symbol `(\w+)'", bindings)
    bound = {symbol: Path(path).name for path, symbol in lines}
    assert {"cblas_sgemm", "sgeev_"} <= wanted
    lapack = {symbol for symbol in wanted if not symbol.startswith("cblas_")}
    own = lapack if "blis" in name else set()  # BLIS has no LAPACK
    assert {bound[symbol] for symbol in wanted - own} == {name}


@pytest.mark.parametrize("threads", only(["1"], ["1", "2"]))
def test_the_number_of_threads_is_openmps(threads: str) -> None:
    name = found()
    ask = {"mkl": "MKL_Get_Max_Threads", "openblas": "openblas_get_num_threads", "blis": "bli_thread_get_num_threads"}
    function = next(function for key, function in ask.items() if key in name)
    program = FIND + f"import ctypes\nprint(ctypes.CDLL(None).{function}())"
    unset = {"MKL_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": ""}
    with all_of_them():
        if int(threads) > len(os.sched_getaffinity(0)):
            pytest.skip("more threads than cores")
        assert python(program, OMP_NUM_THREADS=threads, **unset)[0] == threads


def test_products_and_factors_are_right() -> None:
    found()
    program = """
import mlx.core as mx, numpy as np
mx.set_default_device(mx.cpu)
for dtype in (np.float32, np.complex64):
    a, b = (np.random.default_rng(i).standard_normal((2, 33, 65)).astype(dtype) for i in (0, 1))
    assert np.allclose(mx.array(a) @ mx.array(b).swapaxes(1, 2), a @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-4)
square = np.random.default_rng(2).standard_normal((40, 40)).astype(np.float32)
assert np.allclose(mx.linalg.inv(mx.array(square)) @ mx.array(square), np.eye(40), atol=1e-2)
assert np.allclose(mx.linalg.svd(mx.array(square))[1], np.linalg.svd(square)[1], rtol=1e-3, atol=1e-3)
print("right")
"""
    assert python(FIND + program)[0] == "right"


BOUND = "import localai_shim\nimport mlx_lm\n" + FIND + "print(blas() or '')"
LATE = "import mlx.core\n" + FIND + "print(blas() or '')"
ADVICE = "import localai_shim first"


@functools.cache
def calls_bound(program: str, preload: str = "") -> set[str]:
    """Libraries that libmlx's BLAS products are bound to in a program of its own."""
    _, bindings = python(program, LD_DEBUG="bindings", LD_PRELOAD=preload)
    return {Path(path).name for path in re.findall(r"libmlx\.so \[0\] to (\S+) \[0\]: .*`cblas_sgemm'", bindings)}


def test_importing_the_package_is_enough_for_an_mlx_that_is_imported_later() -> None:
    assert calls_bound(BOUND) == {found()}


def test_importing_the_package_alone_loads_no_library() -> None:
    """Every suite with pytest does, for the plugin."""
    program = (
        "import sys, localai_shim\nprint([name for name in ('_ctypes', 'importlib.metadata') if name in sys.modules])"
    )
    out, bindings = python(program, LD_DEBUG="files")
    assert out == "[]"
    assert "init" in bindings and not re.search("openblas|mkl|blis", bindings)


def test_an_mlx_that_was_imported_before_keeps_its_own_blas_and_nothing_else_is_claimed() -> None:
    found()
    assert python(LATE)[0] == ""
    assert not calls_bound(LATE) & set(map(os.path.basename, blas.BLAS_LIBRARIES))


def test_one_line_in_the_log_says_what_to_do_about_an_mlx_that_was_imported_before() -> None:
    found()
    _, errors = python(LATE + "\nrequire_backend()")
    assert errors.count(ADVICE) == 1


def test_suites_whose_warnings_are_errors_load_a_model_all_the_same() -> None:
    found()
    out, _ = python("import warnings; warnings.simplefilter('error')\n" + LATE + "\nprint('went on')")
    assert out == "went on"


def test_who_imported_the_package_first_is_told_nothing() -> None:
    found()
    assert ADVICE not in python(BOUND)[1]


def test_a_preloaded_library_is_what_mlx_uses_and_nothing_is_said() -> None:
    if "mkl" in (name := found()):
        pytest.skip("MKL has to be told its threads")
    out, errors = python(LATE, LD_PRELOAD=name)
    assert (out, calls_bound(LATE, name)) == (name, {name})
    assert ADVICE not in errors


CORE = """import ctypes, os
library = ctypes.CDLL("libopenblas.so.0")
library.openblas_get_corename.restype = ctypes.c_char_p
print(library.openblas_get_corename().decode(), os.environ.get("OPENBLAS_CORETYPE"))"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have MLX's own products")
def test_an_openblas_that_does_not_know_the_processor_is_told_which_to_take_it_for() -> None:
    try:
        plain, _ = python(CORE)
    except subprocess.CalledProcessError:
        pytest.skip("there is no OpenBLAS")
    name = plain.split()[0]
    better = [core for core, needed in blas.CORES.items() if needed <= blas._processor_flags()]
    told = better[0] if name == "Prescott" and better else name
    assert python(FIND + CORE)[0] == f"{told} None"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have MLX's own products")
def test_who_named_the_processor_is_heard() -> None:
    try:
        assert python(FIND + CORE, OPENBLAS_CORETYPE="Nehalem")[0] in ("Nehalem Nehalem", "ARMV8 Nehalem")
    except subprocess.CalledProcessError:
        pytest.skip("there is no OpenBLAS")
