"""What an audit may do with the labels."""

from dataclasses import dataclass

from karat.errors import UserError


@dataclass(frozen=True)
class AuditSettings:
    """How careful cleaned_labels.csv is.

    Attributes:
        error_rate: the share of changed labels that may be wrong: as many are changed as keep the mean claimed error
            below it, and the other label issues are left for review.
    """

    error_rate: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.error_rate <= 1:
            raise UserError(f"audit.error_rate is {self.error_rate}: write a share from 0 to 1, such as 0.05 for 5%.")
