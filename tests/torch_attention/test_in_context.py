"""In-context regression by a network with CME attention inside: how often its error bars cover."""

import math

import pytest

torch = pytest.importorskip("torch")

from finetti.torch import RBF, cme_attention  # noqa: E402

NOISE, PAIRS, LEVELS = 0.1, 16, (0.5, 0.8, 0.95)


class InContext(torch.nn.Module):
    """Embeds x as query and as key; y is the value. Ridge and kernel are learned with the rest."""

    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16)
        self.embed = torch.nn.Sequential(*layers)
        self.kernel = 1.0 * RBF()
        self.log_ridge = torch.nn.Parameter(torch.tensor(-2.0))

    def forward(self, asked, x, y):
        """Mean, the variance of the function and that of a new noisy value, each (B, Q)."""
        ridge = self.log_ridge.exp()
        tokens = self.embed(asked), self.embed(x), y.unsqueeze(-1)
        options = {"kernel": self.kernel, "ridge": ridge, "scale": 1.0, "return_variance": True}
        mean, variance = cme_attention(*tokens, **options)
        return mean.squeeze(-1), variance, variance + ridge


def draw(functions, queries, generator):
    """Noisy pairs of sums of three sines, places that are asked, the truth and new values there."""
    options = {"generator": generator}
    x, asked = (torch.rand(functions, n, 1, **options) * 6 - 3 for n in (PAIRS, queries))
    height = torch.randn(functions, 3, 1, **options) * (2 / 3) ** 0.5  # so that the variance is 1
    slope, phase = (torch.rand(functions, 1, 3, **options) * limit for limit in (3, 2 * math.pi))
    y, truth = ((torch.sin(slope * at + phase) @ height).squeeze(-1) for at in (x, asked))
    y, new = (each + NOISE * torch.randn(each.shape, **options) for each in (y, truth))
    return x, y, asked, truth, new


@torch.no_grad()
def coverage(network, stretch=1.0):
    """For truth and new values and each level: the share inside the interval and its standard
    error, from 500 independent functions (places of one function are not independent)."""
    x, y, asked, truth, new = draw(500, 8, torch.Generator().manual_seed(1))
    mean, variance, predictive = network(asked, x, y)
    normal, found = torch.distributions.Normal(0.0, 1.0), []
    for target, width in ((truth, variance), (new, predictive)):
        for level in LEVELS:
            reach = normal.icdf(torch.tensor(0.5 + level / 2)) * width.sqrt() * stretch
            share = ((target - mean).abs() <= reach).double().mean(1)
            found.append((level, float(share.mean()), float(share.std() / len(share) ** 0.5)))
    return found


def test_error_bars_of_a_trained_network_cover_at_their_nominal_rate():
    torch.manual_seed(0)
    network = InContext()
    before = coverage(network)
    few = {"params": [*network.kernel.parameters(), network.log_ridge], "lr": 0.05}
    optimizer = torch.optim.Adam([{"params": [*network.embed.parameters()], "lr": 0.005}, few])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 800)
    generator = torch.Generator().manual_seed(0)
    for _ in range(800):
        x, y, asked, _, new = draw(32, 16, generator)
        mean, _, variance = network(asked, x, y)
        loss = -torch.distributions.Normal(mean, variance.sqrt()).log_prob(new).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    for level, share, error in coverage(network):
        assert abs(share - level) <= 4 * error, (level, share, error)
    assert network.log_ridge.exp().item() == pytest.approx(NOISE**2, rel=0.2)
    # The rule notices bars that are not trained, and those that are a fifth longer or shorter.
    assert any(abs(share - level) > 4 * error for level, share, error in before)
    for stretch in (0.8, 1.2):
        for level, share, error in coverage(network, stretch)[2::3]:
            assert abs(share - level) > 4 * error, (stretch, level, share, error)
