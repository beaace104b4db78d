"""What all tables of the configuration have in common."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic import ValidationInfo as FieldContext
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _read_none_and_refuse_truth_as_number(cls, value: Any, context: FieldContext) -> Any:
        annotation = cls.model_fields[str(context.field_name)].annotation
        types = get_args(annotation) or (annotation,)
        # TOML and the environment have no null, yet a limit must be removable.
        if isinstance(value, str) and value.lower() == "none" and type(None) in types:
            return None
        # Pydantic reads true as 1.
        if isinstance(value, bool) and (int in types or float in types):
            raise PydanticCustomError("number_type", "Input should be a number")
        return value

    def _refuse_above(self, key: str, limit_key: str) -> None:
        value, limit = getattr(self, key), getattr(self, limit_key)
        if value > limit:
            message = f"{key} = {value} is above {limit_key} = {limit}"
            context = {"message": message, "keys": (key, limit_key)}
            raise PydanticCustomError("contradiction", "{message}", context)
