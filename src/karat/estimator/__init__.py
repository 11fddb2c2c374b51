"""The scikit-learn face: `KaratClassifier().fit(X, y, trusted=mask)`, for pipelines, grid searches and notebooks."""

from karat.estimator.classifier import KaratClassifier as KaratClassifier
from karat.estimator.classifier import NoTrustedLabelsWarning as NoTrustedLabelsWarning
