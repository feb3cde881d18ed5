"""Checkpoints of mlx-audio: which are found, and errors that name what is missing, with the network out of reach."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.models.loading import load_model, only_tasks, refusal
from localai_shim.models.speech.families import RECOGNIZING, SPEAKING, speech_kind
from localai_shim.models.speech.offline import offline
from localai_shim.models.speech.performing import named_arguments
from localai_shim.models.speech.voices import Speaker, read_settings
from localai_shim.speech import Speaking
from localai_shim.types import ModelLoadError, SpeechRequest
from tests.mlx_audio_models import RECOGNIZERS, VOICES, make_speech_model, tiny_speech
from tests.tiny import tiny


def test_models_that_write_text_are_not_taken_for_models_of_speech() -> None:
    for kind in ("llama", "qwen3", "glm", "mimo", "whisper", "gemma3", "qwen3_forced_aligner", "nobody-knows"):
        assert speech_kind({"model_type": kind}) is None
    assert speech_kind({}) is None and speech_kind({"model_type": 3}) is None
    assert only_tasks(tiny("qwen3")) is None


@pytest.mark.parametrize("family", [*VOICES, *RECOGNIZERS])
def test_checkpoints_are_known_by_their_config(family: str) -> None:
    assert only_tasks(tiny_speech(family)) == (("speak",) if family in VOICES else ("recognize",))
    assert refusal(tiny_speech(family)) == ""


@pytest.mark.parametrize("name", ["qwen3_asr", "voxtral", "canary", "kokoro", "pocket_tts", "granite_speech"])
def test_families_without_a_tiny_model_are_known_by_their_config(name: str) -> None:
    assert speech_kind({"model_type": name}) in ("tts", "stt")


def without(family: str, folder: Path, file: str) -> Path:
    """A copy of a tiny model that lacks a file or a folder."""
    copied = shutil.copytree(tiny_speech(family), folder / family)
    gone = copied / file
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    return copied


@pytest.mark.parametrize(
    ("family", "file", "named"),
    [
        ("qwen3_tts", "speech_tokenizer", "has no folder speech_tokenizer"),
        ("qwen3_tts", "tokenizer.json", "has no tokenizer"),
        ("moonshine", "tokenizer.json", "has no tokenizer.json"),
        ("soprano", "model.safetensors", "has no weights"),
    ],
)
def test_a_missing_file_is_named(family: str, file: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=named):
        load_model(str(without(family, tmp_path, file)), {})


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    folder = make_speech_model(tmp_path / "moonshine", "moonshine")
    weights: Any = mx.load(str(folder / "model.safetensors"))
    del weights["decoder.norm.weight"]
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    with pytest.raises(ModelLoadError, match=r"lacks tensors.*decoder\.norm\.weight"):
        load_model(str(folder), {})


def test_tensors_that_are_not_read_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_speech_model(tmp_path / "moonshine", "moonshine")
    weights: Any = mx.load(str(folder / "model.safetensors"))
    mx.save_safetensors(str(folder / "model.safetensors"), {**weights, "extra.weight": mx.zeros(3)})
    assert load_model(str(folder), {}).tasks == ("recognize",)
    assert "has tensors that mlx-audio does not read" in caplog.text and "extra.weight" in caplog.text


def test_a_missing_package_is_named_with_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "misaki" else find(name, *more)
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "kokoro"}))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), {"a": mx.zeros(2)})
    with pytest.raises(ModelLoadError, match=r"'misaki', which is not installed. Run `pip install 'misaki\[en\]'`"):
        load_model(str(tmp_path), {})


def test_an_import_that_fails_later_is_an_error_that_names_the_package() -> None:
    with pytest.raises(ModelLoadError, match="the model 'm' needs the Python package 'nobody_has_this'"), offline("m"):
        importlib.import_module("nobody_has_this")


def test_adapters_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="adapter_path: 'tiny-soprano' is a model of speech"):
        load_model(str(tiny_speech("soprano")), {"adapter_path": str(tiny_speech("soprano"))})


# -- the network ----------------------------------------------------------------------------------------------------


def test_files_of_other_repositories_are_named_and_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants, hf_hub_download, snapshot_download

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    expected = r"needs files of 'someone/codec'.*`hf download someone/codec`"
    for fetch in (lambda: hf_hub_download("someone/codec", "config.json"), lambda: snapshot_download("someone/codec")):
        with pytest.raises(ModelLoadError, match=expected), offline("m"):
            fetch()


def test_only_the_thread_that_runs_the_model_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    before, found = constants.is_offline_mode, list[bool]()
    with offline("a"):
        other = threading.Thread(target=lambda: found.append(constants.is_offline_mode()))
        other.start()
        other.join(60)
        with offline("b"):
            found.append(constants.is_offline_mode())
        found.append(constants.is_offline_mode())
    assert found == [False, True, True] and constants.is_offline_mode is before


def test_a_family_whose_code_loads_a_codec_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelLoadError, match=r"needs files of 'mlx-community/snac_24khz'"), offline("orpheus"):
        importlib.import_module("mlx_audio.tts.models.llama")


# -- the table of families ------------------------------------------------------------------------------------------


def signature_of(kind: str, family: str) -> frozenset[str] | None:
    """Arguments of a family's `generate`, by its source; None: it takes any."""
    import ast

    import mlx_audio

    for path in sorted((Path(mlx_audio.__file__).parent / kind / "models" / family).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "generate":
                names = frozenset(arg.arg for arg in (*node.args.args, *node.args.kwonlyargs))
                if names & {"text", "audio"}:
                    return None if node.args.kwarg is not None and len(names) <= 2 else names
    raise AssertionError(f"{family} has no generate")


def test_families_take_the_arguments_that_the_tables_say() -> None:
    through_kwargs = {("irodori_tts", "instruct")}
    for family, honors in SPEAKING.items():
        names = signature_of("tts", family)
        for argument in ("voice", "speed", "instruct", "stream"):
            if names is not None and getattr(honors, argument) and (family, argument) not in through_kwargs:
                assert argument in names, (family, argument)
    for family, hears in RECOGNIZING.items():
        names = signature_of("stt", family)
        for taken in (hears.language, hears.prompt):
            assert names is None or taken is None or taken in names, (family, taken)


class Kokoro:
    """Takes what Kokoro takes, and gives stereo sound in half precision."""

    sample_rate = 24_000

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def generate(self, text: str, voice: Any = None, speed: float = 1.0, lang_code: str = "a", **more: Any) -> Any:
        self.given = {"voice": voice, "speed": speed, "lang_code": lang_code, **more}
        for samples in ([[0.5, 0.25], [0.5, 0.75]], [[0.0] * 2] * 0):
            yield SimpleNamespace(audio=mx.array(samples, mx.float16), sample_rate=24_000, token_count=5)


def test_voices_are_the_files_of_their_folder_and_speed_is_passed(tmp_path: Path) -> None:
    for name in ("bf_emma", "af_heart"):
        (tmp_path / "voices").mkdir(exist_ok=True)
        (tmp_path / "voices" / f"{name}.safetensors").touch()
    model: Any = Kokoro()
    settings = read_settings(model, "kokoro", tmp_path)
    assert settings == Speaking(("af_heart", "bf_emma"), takes_speed=True)
    speaker = Speaker(model, "kokoro", settings, "kokoro")
    [piece] = speaker.begin(SpeechRequest("Hi", voice="bf_emma", speed=1.5))
    assert model.given == {"voice": "bf_emma", "speed": 1.5, "lang_code": "b"}
    assert piece.samples.tolist() == [0.5, 0.5] and piece.tokens == 5


def test_a_model_that_makes_no_sound_or_none_that_can_be_played_is_an_error() -> None:
    class Silent:
        def generate(self, text: str) -> Any:
            for samples in [[]] if text == "none" else [[np.nan]]:
                yield SimpleNamespace(audio=mx.array(samples), sample_rate=8_000, token_count=0)

    speaker = Speaker(Silent(), "soprano", Speaking(), "m")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="made no sound"):
        [*speaker.begin(SpeechRequest("none"))]
    with pytest.raises(ValueError, match="not finite"):
        [*speaker.begin(SpeechRequest("bad"))]


def test_a_model_that_needs_a_recording_is_refused() -> None:
    from localai_shim.models.speech.voices import _SOUND, _required

    def generate(text: str, ref_audio: Any, speed: float = 1.0) -> None: ...

    model: Any = SimpleNamespace(generate=generate)
    assert _SOUND & _required(model) == {"ref_audio"}
    assert named_arguments(generate) == {"text", "ref_audio", "speed"}
