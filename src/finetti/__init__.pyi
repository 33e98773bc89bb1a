from . import attention as attention
from . import claims as claims
from . import core as core
from . import kernels as kernels
from . import report as report
from . import show as show
