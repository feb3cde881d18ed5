"""The pytest plugin: fixtures and hooks. It imports nothing that a test has not asked for."""

pytest_plugins = ["localai_shim.testing.offline"]
