"""Programs on replicas: the command line's batches, and the examples."""

from __future__ import annotations

import importlib
import json
import socket
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim.cli.main import main
from localai_shim.ray import RayOpenAI
from localai_shim.ray.batch_lines import answer_lines
from tests.scale.ray.kit import kill, message, process_ids

FAILING = {"custom_id": "hot", "method": "POST", "url": "/v1/responses", "body": {"input": "Hi", "temperature": 9}}


def request(number: int) -> dict[str, Any]:
    body = {"model": "any", "input": f"What is {number} + 3?", "temperature": 0, "max_output_tokens": 12}
    return {"custom_id": f"sum-{number}", "method": "POST", "url": "/v1/responses", "body": body}


def write(path: Path, *requests: Any) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in requests), encoding="utf-8")
    return str(path)


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def text_of(response: Any) -> str:
    return str(response["output"][0]["content"][0]["text"])


def test_replicas_answer_a_file_and_go_on_with_it(
    cluster: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = tmp_path / "out.jsonl"
    few = write(tmp_path / "few.jsonl", FAILING, *map(request, range(5)))
    assert main(["batch", few, str(answers), "--ray", "2"]) == 1
    assert "hot: Invalid 'temperature'" in capfd.readouterr().err
    all_of_them = write(tmp_path / "all.jsonl", FAILING, *map(request, range(10)))
    assert main(["batch", all_of_them, str(answers), "--ray", "1", "--resume"]) == 1
    assert [each["custom_id"] for each in read(answers)] == ["hot", *(f"sum-{number}" for number in range(10))]
    found = {each["custom_id"]: each["response"] for each in read(answers)}
    assert found["hot"]["status_code"] == 400
    assert [text_of(found[f"sum-{number}"]["body"]) for number in range(10)] == [
        f"{number} + 3 = {number + 3}." for number in range(10)
    ]


def test_a_model_that_is_none_is_one_line(cluster: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    few = write(tmp_path / "few.jsonl", request(1))
    assert main(["batch", few, str(tmp_path / "out.jsonl"), "--ray", "1", "-m", "./nowhere"]) == 1
    assert "localai-shim batch: " in (said := capfd.readouterr().err) and "nowhere" in said
    assert not (tmp_path / "out.jsonl").exists()


def test_lines_outlive_a_replica(replicas: RayOpenAI) -> None:
    process = process_ids(replicas)["replica-1"]
    lines = [json.dumps(request(number)) for number in range(40)]
    streamed = {**request(40), "body": {"input": "Hi", "stream": True}}
    found: list[Any] = []
    for answer in map(json.loads, answer_lines(replicas, ["no JSON", *lines, json.dumps(streamed)])):
        if not found:
            kill(process)
        found.append(answer)
    assert "Line 1:" in str(found[0]["error"])
    assert [text_of(each["response"]["body"]) for each in found[1:41]] == [
        f"{number} + 3 = {number + 3}." for number in range(40)
    ]
    assert found[41]["response"]["body"]["error"]["param"] == "stream" and len(found) == 42


@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_ray_data_answers_a_file_in_its_order_and_goes_on_with_it(cluster: None, tmp_path: Path) -> None:
    example, answers = importlib.import_module("examples.ray_data"), tmp_path / "out.jsonl"
    requests = write(tmp_path / "in.jsonl", *map(request, range(4)), FAILING, *map(request, range(5, 10)))
    failures = example.main(requests, str(answers))
    assert len(failures) == 1 and failures[0].startswith("hot: ") and "temperature" in failures[0]
    first = read(answers)
    assert [each["custom_id"] for each in first] == [each["custom_id"] for each in read(Path(requests))]
    assert text_of(first[9]["body"]) == "9 + 3 = 12."
    kept = answers.read_bytes().splitlines(keepends=True)
    answers.write_bytes(b"".join(kept[:7]) + kept[7][:20])  # as of a run that was killed
    example.main(requests, str(answers), replicas=1)
    assert answers.read_bytes().splitlines(keepends=True)[:7] == kept[:7]
    assert [each["custom_id"] for each in read(answers)] == [each["custom_id"] for each in first]


@pytest.mark.filterwarnings("ignore")
def test_ray_serve_has_a_url_for_clients_of_openai(cluster: None) -> None:
    serve, example = importlib.import_module("ray.serve"), importlib.import_module("examples.ray_serve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"port": port})
    try:
        serve.run(example.app)
        with openai.OpenAI(api_key="unused", base_url=f"http://127.0.0.1:{port}/v1") as client:
            stream = client.responses.create(model="any", input="What is 2 + 3?", temperature=0, stream=True)
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            assert text == "2 + 3 = 5."
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(model="any", messages=message("Hi"), temperature=9)
    finally:
        serve.shutdown()
