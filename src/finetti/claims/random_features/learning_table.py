"""Test errors of the random-feature models, measured once: what `R-table` is held against."""

from dataclasses import dataclass

SIZES = 64, 256, 1024, 2048, 4096
REPEATS = 3  # behind each number below

# d = N = 16, M = 1000 heads (17 000 neurons); the largest standard deviation over seeds comes last.
_TABLE = """
key_power_1         RFA   0.19  0.013  0.0017 0.00094 0.00056 0.04
key_power_1         BRFA  0.27  0.084  0.042  0.022   0.011   0.05
key_power_1         RFMLP 0.81  0.32   0.021  0.0092  0.0072  0.05
key_power_1         SOFT  0.032 0.0021 0.0011 0.00096 0.00087 0.003
key_power_1         EXP   0.21  0.016  0.003  0.0018  0.0011  0.03
key_power_2         RFA   1     0.75   0.15   0.041   0.017   0.06
key_power_2         BRFA  1     0.78   0.19   0.081   0.052   0.04
key_power_2         RFMLP 1     1      1      1       1       0.007
key_power_2         SOFT  1     0.43   0.14   0.1     0.09    0.02
key_power_2         EXP   1     0.84   0.24   0.09    0.042   0.06
key_power_3         RFA   0.6   0.42   0.38   0.37    0.36    0.05
key_power_3         BRFA  0.65  0.47   0.41   0.4     0.39    0.03
key_power_3         RFMLP 0.91  0.69   0.45   0.4     0.38    0.05
key_power_3         SOFT  0.44  0.39   0.36   0.35    0.31    0.02
key_power_3         EXP   0.61  0.43   0.38   0.37    0.36    0.06
key_power_4         RFA   1     0.86   0.43   0.31    0.26    0.06
key_power_4         BRFA  1     0.88   0.46   0.34    0.28    0.04
key_power_4         RFMLP 1     1      1      1       1       0.02
key_power_4         SOFT  1     0.59   0.35   0.31    0.28    0.02
key_power_4         EXP   1     0.93   0.5    0.36    0.29    0.05
correlation_power_1 RFA   0.64  0.55   0.51   0.39    0.18    0.07
correlation_power_1 BRFA  0.62  0.51   0.33   0.18    0.1     0.07
correlation_power_1 RFMLP 0.99  0.84   0.64   0.58    0.54    0.04
correlation_power_1 SOFT  0.88  0.59   0.41   0.28    0.15    0.08
correlation_power_1 EXP   0.66  0.55   0.51   0.46    0.29    0.07
correlation_power_2 RFA   0.89  0.72   0.66   0.64    0.63    0.05
correlation_power_2 BRFA  0.9   0.73   0.66   0.64    0.63    0.05
correlation_power_2 RFMLP 0.98  0.9    0.75   0.69    0.66    0.03
correlation_power_2 SOFT  0.78  0.67   0.64   0.63    0.62    0.05
correlation_power_2 EXP   0.88  0.73   0.66   0.64    0.63    0.06
correlation_power_3 RFA   0.74  0.65   0.62   0.61    0.49    0.07
correlation_power_3 BRFA  0.73  0.63   0.56   0.45    0.37    0.06
correlation_power_3 RFMLP 1     0.89   0.75   0.68    0.65    0.03
correlation_power_3 SOFT  0.91  0.68   0.6    0.52    0.43    0.1
correlation_power_3 EXP   0.75  0.66   0.62   0.61    0.54    0.06
correlation_power_4 RFA   0.99  0.95   0.9    0.89    0.87    0.03
correlation_power_4 BRFA  0.99  0.95   0.89   0.88    0.87    0.03
correlation_power_4 RFMLP 1     0.98   0.95   0.93    0.9     0.03
correlation_power_4 SOFT  0.96  0.9    0.89   0.88    0.87    0.02
correlation_power_4 EXP   0.99  0.95   0.9    0.89    0.88    0.03
"""


@dataclass(frozen=True)
class TableCell:
    """Error of a model on a target with n samples, and how much it varies between seeds."""

    target: str
    model: str
    n_samples: int
    error: float
    deviation: float

    def distance(self, mean: float, repeats: int) -> float:
        """|mean − error| over what chance explains, 4·sd·√(1/3 + 1/repeats)."""
        tolerance = 4 * self.deviation * (1 / REPEATS + 1 / repeats) ** 0.5
        return abs(mean - self.error) / tolerance


def table_cells() -> list[TableCell]:
    """All cells, row by row.

    >>> len(table_cells()), table_cells()[0].error
    (200, 0.19)
    """
    cells = []
    for line in _TABLE.strip().splitlines():
        target, model, *numbers = line.split()
        *errors, deviation = map(float, numbers)
        cells += [
            TableCell(target, model, n, error, deviation)
            for n, error in zip(SIZES, errors, strict=True)
        ]
    return cells
