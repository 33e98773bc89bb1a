"""The attention family in PyTorch: functions, modules, kernels, decoding (extra ``torch``).

No JAX is called. The mathematics is that of `finetti.attention`; each is the other's test.
"""

import importlib.util

import lazy_loader

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "finetti.torch needs PyTorch, which is not installed. Install it beside this package: "
        "pip install 'finetti[torch]'"
    )

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
