"""The default method: a label model reads the true classes off all labels, and a network learns its posteriors."""

from karat.methods.karat.method import Karat as Karat
from karat.methods.settings import KaratSettings as KaratSettings
