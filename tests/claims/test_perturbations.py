import subprocess
import sys

ALONE = """
from types import SimpleNamespace
import numpy as np
from finetti.claims.perturbations import ratios

def lemma(x):
    from finetti.attention.networks.activations import ACTIVATIONS
    return SimpleNamespace(ratio=ACTIVATIONS["relu"](x))

assert ratios(lemma, np.array([-1.0, 2.0])).tolist() == [0.0, 2.0]
"""


def test_a_lemma_may_import_networks_when_it_is_the_first_to_run():
    """Activations look at their function on import, which `jax.vmap` of a ReLU does not allow."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
