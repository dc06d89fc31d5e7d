"""Alembic: migrations up and down, one after the other and each in a transaction, an index built concurrently."""

import os

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

ENVIRONMENT = '''
import sqlalchemy as sa
from alembic import context
engine = sa.create_engine("postgresql+psycopg://", poolclass=sa.pool.NullPool)
metadata = sa.MetaData()
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
    with context.begin_transaction():
        context.execute("select pg_advisory_xact_lock(77)")
        context.run_migrations()
'''
STEP = '''
from alembic import op
import sqlalchemy as sa
revision, down_revision = {revision!r}, {down!r}
def upgrade():
    {up}
def downgrade():
    {back}
'''
STEPS = [
    ("op.create_table('people', sa.Column('id', sa.Integer, primary_key=True), sa.Column('name', sa.Text))", "op.drop_table('people')"),
    ("op.bulk_insert(sa.table('people', sa.column('id'), sa.column('name')), [{'id': n, 'name': str(n)} for n in range(100)])",
     "op.execute('delete from people')"),
    ("op.add_column('people', sa.Column('email', sa.Text, server_default='none'))", "op.drop_column('people', 'email')"),
    ("with op.get_context().autocommit_block(): op.create_index('people_name', 'people', ['name'], postgresql_concurrently=True)",
     "op.drop_index('people_name')"),
    ("op.execute(\"create type mood as enum ('sad'); alter table people add mood mood\")",
     "op.execute('alter table people drop mood; drop type mood')"),
    ("with op.get_context().autocommit_block(): op.execute(\"alter type mood add value 'happy'\")", "pass"),
    ("op.execute(\"update people set mood = 'happy'\")", "pass"),
]


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


def prepare():
    os.makedirs("migrations/versions")
    with open("migrations/env.py", "w") as file:
        file.write(ENVIRONMENT)
    for number, (up, back) in enumerate(STEPS):
        down = f"r{number - 1}" if number else None
        with open(f"migrations/versions/r{number}.py", "w") as file:
            file.write(STEP.format(revision=f"r{number}", down=down, up=up, back=back))
    config = Config()
    config.set_main_option("script_location", "migrations")
    config.set_main_option("path_separator", "os")
    return config


def look(what):
    engine = sa.create_engine("postgresql+psycopg://", poolclass=sa.pool.NullPool)
    inspector = sa.inspect(engine)
    show(what, sorted(inspector.get_table_names()))
    if inspector.has_table("people"):
        show("columns", [column["name"] for column in inspector.get_columns("people")])
        show("indexes", [index["name"] for index in inspector.get_indexes("people")])
    with engine.connect() as conn:
        show("version", conn.execute(sa.text("select version_num from alembic_version")).all())


config = prepare()
show("heads", ScriptDirectory.from_config(config).get_heads())
command.upgrade(config, "r2")
look("at r2")
command.upgrade(config, "head")
look("at head")
command.downgrade(config, "r3")
look("back at r3")
command.downgrade(config, "base")
look("at base")
command.upgrade(config, "head")
look("at head again")
command.current(config)
print("done")
