"""What Alembic runs: the migrations as one SQL script, without a connection of its own."""

from __future__ import annotations

from alembic import context

context.configure(
    dialect_name="postgresql",
    target_metadata=None,
    literal_binds=True,
    transactional_ddl=False,  # whoever runs the script does so in a transaction of its own
)
context.run_migrations()
