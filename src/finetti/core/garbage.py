"""How often Python looks for garbage."""

import gc


def collect_rarely() -> None:
    """For processes of our own, which import thousands of modules first.

    None of these is garbage, and looking at all of them again and again is a tenth of the time
    that it takes to import them.
    """
    gc.set_threshold(50_000, 20, 100)
