from .attention_kernel import AttentionKernelRegressor as AttentionKernelRegressor
from .conditional_mean import ConditionalMeanClassifier as ConditionalMeanClassifier
from .conditional_mean import ConditionalMeanRegressor as ConditionalMeanRegressor
from .instrumental import InstrumentalRegressor as InstrumentalRegressor
from .kernel_smoother import BandwidthPath as BandwidthPath
from .kernel_smoother import KernelSmootherRegressor as KernelSmootherRegressor
from .random_feature_attention import (
    RandomFeatureAttentionClassifier as RandomFeatureAttentionClassifier,
)
from .random_feature_attention import (
    RandomFeatureAttentionRegressor as RandomFeatureAttentionRegressor,
)
from .random_feature_mlp import RandomFeatureMLPRegressor as RandomFeatureMLPRegressor
from .ridge import RidgePath as RidgePath
