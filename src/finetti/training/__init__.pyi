from .cohort import CheckResult as CheckResult
from .cohort import Member as Member
from .cohort import TrainingRun as TrainingRun
from .cohort import train_cohort as train_cohort
from .optimizers import adamw as adamw
from .optimizers import matrices as matrices
from .single import DivergedError as DivergedError
from .single import train as train
