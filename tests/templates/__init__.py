"""Chat templates of every family, in our own words, and what has to hold of any template."""

import pytest

pytest.register_assert_rewrite("tests.templates.uses")
