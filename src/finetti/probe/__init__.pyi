from .analysis.analysis import Analysis as Analysis
from .analysis.analysis import analyze as analyze
from .analysis.critical import CriticalSize as CriticalSize
from .analysis.curve import SuccessCurve as SuccessCurve
from .analysis.curve import fit_curve as fit_curve
from .analysis.laws import ScalingLaw as ScalingLaw
from .analysis.laws import ScalingLaws as ScalingLaws
from .analysis.laws import fit_laws as fit_laws
