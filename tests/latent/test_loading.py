import subprocess
import sys


def test_worlds_without_kernels_load_no_jax():
    code = (
        "import sys, finetti.latent; assert 'numpy' not in sys.modules; "
        "world = finetti.latent.worlds['linear-gaussian'](); draw = world.sample(0, 2, 3); "
        "world.predict(draw.tokens, draw.query); str(world); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
