"""The table of files and batches in the configuration."""

from __future__ import annotations

from pydantic import Field, model_validator

from tertulia.plan_tables import Table


class BatchesTable(Table):
    """Files and batches of programs (`/v1/files`, `/v1/batches`)."""

    file_bytes: int = Field(
        50_000_000, ge=1_000, le=1_000_000_000, description="Longest file, in bytes."
    )
    line_bytes: int = Field(
        1_000_000, ge=1_000, le=10_000_000, description="Longest request of a batch, in bytes."
    )
    lines: int = Field(50_000, ge=1, le=1_000_000, description="Requests of one batch.")
    user_bytes: int = Field(
        500_000_000,
        ge=1_000,
        le=1_000_000_000_000,
        description="Bytes of all files that a user may keep.",
    )
    user_batches: int = Field(
        20, ge=1, le=10_000, description="Batches of a user that have not ended."
    )
    open_lines: int = Field(
        32,
        ge=1,
        le=100_000,
        description="Requests of all batches that wait or run at once; the others stay in files.",
    )
    kept_days: int = Field(
        30,
        ge=1,
        le=3_650,
        description="How long files are kept, unless they come with a time of their own.",
    )

    @model_validator(mode="after")
    def _has_room_for_a_file(self) -> BatchesTable:
        if self.user_bytes < self.file_bytes:
            raise ValueError("user_bytes must not be less than file_bytes")
        if self.file_bytes < self.line_bytes:
            raise ValueError("line_bytes must not be more than file_bytes")
        return self
