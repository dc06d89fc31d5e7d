"""SQLAlchemy over its three drivers: pools, savepoints, isolation levels, streams, reflection, batches of inserts."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa
from sqlalchemy import exc, orm
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.ext.asyncio import create_async_engine


def show(what, value):
    print(f"{what}: {value!r}", flush=True)


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(unique=True)
    facts: orm.Mapped[dict] = orm.mapped_column(JSONB, default=dict)
    tags: orm.Mapped[list] = orm.mapped_column(ARRAY(sa.Text), default=list)
    mood: orm.Mapped[str] = orm.mapped_column(sa.Enum("sad", "happy", name="mood"), default="happy")
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", order_by="Book.id", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "books"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str]
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("authors.id"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def objects(engine):
    with orm.Session(engine) as session:
        for number in range(40):
            author = Author(name=f"author {number}", facts={"n": number}, tags=["a", str(number)])
            author.books = [Book(title=f"book {number}.{at}") for at in range(25)]
            session.add(author)
        session.commit()
        show("authors", session.scalar(sa.select(sa.func.count()).select_from(Author)))
        author = session.scalars(sa.select(Author).where(Author.name == "author 7")).one()
        show("lazy", (author.facts, author.tags, author.mood, len(author.books), author.books[0].title))
        eager = sa.select(Author).options(orm.selectinload(Author.books)).where(Author.id <= 5).order_by(Author.id)
        show("eager", [(a.name, len(a.books)) for a in session.scalars(eager)])
        author.name = "renamed"
        session.delete(session.get(Author, 3))
        session.commit()
        show("renamed", session.scalar(sa.select(Author.name).where(Author.id == author.id)))
        show("books", session.scalar(sa.select(sa.func.count(Book.id))))
        locked = session.scalars(sa.select(Book).where(Book.id == 1).with_for_update()).one()
        locked.title = "locked"
        session.commit()
        upsert = insert(Author).values(name="author 1", facts={}, tags=[], mood="sad")
        upsert = upsert.on_conflict_do_update(index_elements=["name"], set_={"mood": upsert.excluded.mood}).returning(Author.mood)
        show("upsert", session.execute(upsert).scalar())
        session.commit()


def savepoints(engine):
    with orm.Session(engine) as session:
        session.add(Author(name="outer"))
        session.flush()
        try:
            with session.begin_nested():
                session.add(Author(name="outer"))
                session.flush()
        except exc.IntegrityError as error:
            show("inner", getattr(error.orig, "sqlstate", None) or error.orig.pgcode)
        with session.begin_nested():
            session.add(Author(name="inner"))
        session.commit()
        names = sa.select(Author.name).where(Author.name.in_(["outer", "inner"])).order_by(Author.name)
        show("kept", session.scalars(names).all())
    with engine.connect() as conn:
        outer = conn.begin()
        conn.execute(sa.delete(Book))
        point = conn.begin_nested()
        conn.execute(sa.text("savepoint of_mine"))
        conn.execute(sa.text("rollback to savepoint of_mine"))
        point.rollback()
        outer.rollback()
        show("still there", conn.scalar(sa.select(sa.func.count(Book.id))) > 0)


def isolation(engine):
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"):
        with engine.connect().execution_options(isolation_level=level) as conn:
            show(level, (conn.scalar(sa.text("show transaction_isolation")), conn.get_isolation_level()))
            conn.execute(sa.insert(Author).values(name=level, facts={}, tags=[], mood="sad"))
    with engine.connect().execution_options(isolation_level="SERIALIZABLE", postgresql_readonly=True, postgresql_deferrable=True) as conn:
        show("read only", conn.scalar(sa.text("select current_setting('transaction_read_only')")))
    with engine.connect() as conn:
        show("back", conn.scalar(sa.text("show transaction_isolation")))
        left = sa.select(Author.name).where(Author.mood == "sad", Author.name != "author 1").order_by(Author.name)
        show("committed", conn.scalars(left).all())
        conn.execute(sa.delete(Author).where(Author.mood == "sad", Author.name != "author 1"))
        conn.commit()


def streams(engine):
    with engine.connect() as conn:
        rows = conn.execution_options(stream_results=True, max_row_buffer=100).execute(sa.select(Book.id).order_by(Book.id))
        show("streamed", sum(row.id for row in rows.yield_per(50)))
        with orm.Session(conn) as session:
            parts = session.scalars(sa.select(Book).order_by(Book.id).limit(120).execution_options(yield_per=50)).partitions()
            show("partitions", [len(part) for part in parts])


def reflection(engine):
    inspector = sa.inspect(engine)
    show("tables", sorted(inspector.get_table_names()))
    show("columns", [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns("authors")])
    show("foreign keys", [key["referred_table"] for key in inspector.get_foreign_keys("books")])
    show("unique", [c["column_names"] for c in inspector.get_unique_constraints("authors")])
    show("enums", [(e["name"], e["labels"]) for e in inspector.get_enums()])
    reflected = sa.MetaData()
    reflected.reflect(engine)
    show("reflected", sorted(reflected.tables))


def pools(engine):
    def work(number):
        with orm.Session(engine) as session, session.begin():
            session.add(Book(title=f"pooled {number}", author_id=1))
            session.flush()
            return session.scalar(sa.select(Author.name).where(Author.id == number % 3 + 4))

    with ThreadPoolExecutor(8) as threads:
        show("pooled", sorted(set(threads.map(work, range(80)))))
    with engine.begin() as conn:
        many = [{"title": f"many {n}", "author_id": 2} for n in range(2500)]
        returned = conn.execute(sa.insert(Book).returning(Book.title, sort_by_parameter_order=True), many).all()
        show("returned", (len(returned), returned[0].title, returned[-1].title))
        conn.execute(sa.update(Book).where(Book.title == sa.bindparam("old")), [{"old": f"many {n}", "title": "new"} for n in range(30)])
    with engine.connect() as conn:
        show("new", conn.scalar(sa.select(sa.func.count()).where(Book.title == "new")))
    try:
        with engine.connect() as conn:
            conn.execute(sa.text("select 1 / 0"))
    except exc.DBAPIError as error:
        show("by zero", getattr(error.orig, "sqlstate", None) or error.orig.pgcode)
    engine.dispose()
    with engine.connect() as conn:
        show("after dispose", conn.scalar(sa.text("select 1")))


def with_driver(driver):
    show("==", driver)
    engine = sa.create_engine(f"postgresql+{driver}://", pool_pre_ping=True, pool_size=3, max_overflow=5)
    Base.metadata.create_all(engine)
    for part in (objects, savepoints, isolation, streams, reflection, pools):
        show("--", part.__name__)
        part(engine)
    Base.metadata.drop_all(engine)
    engine.dispose()


async def asynchronous():
    show("==", "asyncpg")
    engine = create_async_engine("postgresql+asyncpg://", pool_size=3)
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
        await conn.execute(sa.insert(Author), [{"name": f"a{n}", "facts": {"n": n}, "tags": [], "mood": "sad"} for n in range(300)])

    async def read(number):
        async with engine.connect() as conn:
            return await conn.scalar(sa.select(Author.facts).where(Author.name == f"a{number}"))

    show("read", sum(facts["n"] for facts in await asyncio.gather(*(read(number) for number in range(60)))))
    async with engine.connect() as conn:
        result = await conn.stream(sa.select(Author.id).order_by(Author.id))
        show("streamed", sum([row.id async for row in result]))
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.drop_all)
    await engine.dispose()


with_driver("psycopg")
with_driver("psycopg2")
asyncio.run(asynchronous())
print("done")
