"""Errors and warnings that point at the user's line."""

import pytest


def test_a_warning_reaches_code_that_has_no_module():
    code = "from finetti.core.errors import warn_user\nwarn_user('look')"
    with pytest.warns(UserWarning, match="look"):
        exec(code, {})
