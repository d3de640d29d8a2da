"""What Alembic runs: the migrations, on the connection it was given, in one transaction."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=None,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
