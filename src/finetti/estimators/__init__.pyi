from .attention_kernel import AttentionKernelRegressor as AttentionKernelRegressor
from .conditional_mean import ConditionalMeanClassifier as ConditionalMeanClassifier
from .conditional_mean import ConditionalMeanRegressor as ConditionalMeanRegressor
from .constrained_attention import (
    ConstrainedAttentionClassifier as ConstrainedAttentionClassifier,
)
from .constrained_attention import (
    ConstrainedAttentionRegressor as ConstrainedAttentionRegressor,
)
from .instrumental import InstrumentalRegressor as InstrumentalRegressor
from .kernel_smoother import BandwidthPath as BandwidthPath
from .kernel_smoother import KernelSmootherRegressor as KernelSmootherRegressor
from .learned_norms import LearnedNorms as LearnedNorms
from .learning_chart import learning_chart as learning_chart
from .learning_curves import learn_targets as learn_targets
from .random_feature_attention import (
    RandomFeatureAttentionClassifier as RandomFeatureAttentionClassifier,
)
from .random_feature_attention import (
    RandomFeatureAttentionRegressor as RandomFeatureAttentionRegressor,
)
from .random_feature_mlp import RandomFeatureMLPRegressor as RandomFeatureMLPRegressor
from .ridge import RidgePath as RidgePath
from .token_regression import make_token_regression as make_token_regression
from .token_targets import CorrelationPowerTarget as CorrelationPowerTarget
from .token_targets import KeyPowerTarget as KeyPowerTarget
from .token_targets import TensorTarget as TensorTarget
from .token_targets import TokenTarget as TokenTarget
