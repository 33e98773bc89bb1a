"""A pytest plugin: with FINETTI_NO_SKIPS, as in .ci/run, an unexpected skip fails the run."""

import os
from typing import Any

# Tests that no package or file would run, by what their reasons say: scikit-learn's own checks of
# arrays that are not NumPy's, and devices, which a container may forbid.
EXPECTED = ("SCIPY_ARRAY_API", "only an administrator makes devices")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the tests that must run and were skipped, and end with an error."""
    if not os.environ.get("FINETTI_NO_SKIPS"):
        return
    reasons = {str(each.longrepr) for each in terminalreporter.stats.get("skipped", [])}
    unexpected = [why for why in sorted(reasons) if not any(known in why for known in EXPECTED)]
    if unexpected:
        terminalreporter.write_line("These tests must run, and were skipped:", red=True)
        for why in unexpected:
            terminalreporter.write_line(f"  {why}")
        terminalreporter._session.exitstatus = 1
