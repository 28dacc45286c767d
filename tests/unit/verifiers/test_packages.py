"""Packages that only some environments need."""

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.verifiers.packages import require_package


def test_a_package_that_is_missing_is_named_with_who_needs_it_and_what_to_do() -> None:
    require_package("json", "math compares answers with the package json")
    with pytest.raises(
        ConfigError, match="math compares with the package x, which is not installed here: start it with"
    ):
        require_package("nowhere_at_all", "math compares with the package x")
