"""Names that PgBouncer's tests need to run with Weir.

A reload that fails is no error of the console's, as with PgBouncer, which says so in its log alone.

The ini file is translated before every reload. Words of PgBouncer's log are not looked for (adapted: "log"). Texts and codes of errors may be Weir's
(`texts.json`). A SET of which a notice says that a file decides is written to the file, and the file is reloaded (adapted: "set").
Writes a line for each part of a test: the verdict, how it was adapted, and the text of a failure.
"""

import contextlib
import json
import os
import re
import subprocess

import psycopg
import pytest

from . import utils

# Sees what this test has needed so far.
adapted = set()
results = os.environ["WEIR_TESTS_RESULTS"]
is_weir = os.environ["WEIR_TESTS_PROGRAM"] == "weir"
with open(utils.TEST_DIR / "texts.json", encoding="utf-8") as f:
    texts = json.load(f)


def translate(bouncer):
    command = [str(utils.BOUNCER_EXE), "--translate", str(bouncer.ini_path)]
    said = subprocess.run(command, capture_output=True, check=False, encoding="utf-8")
    if said.returncode != 0:
        with open(bouncer.config_dir / "weir.notes", encoding="utf-8") as f:
            raise psycopg.errors.ConfigFileError(f.read())


@contextlib.contextmanager
def log_contains(self, re_string, times=None):
    adapted.add("log")
    yield


def raises(expected, *args, match=None, **kwargs):
    # Without a text it is enough that the client is told an error, of whatever code.
    if match is None and expected is psycopg.OperationalError:
        expected = psycopg.Error
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    # PgBouncer's pattern, Weir's, and a test if it holds for that one alone.
    words = [weir for theirs, weir, *only in texts if theirs == match and all(name in test for name in only)]
    if not words:
        return plain_raises(expected, *args, match=match, **kwargs)
    either = "|".join(f"(?:{word})" for word in [match, *words])
    return plain_raises(psycopg.Error, *args, match=either, **kwargs)


def is_reload(query):
    return query.strip().rstrip(";").lower() == "reload"


def set_again(bouncer, setting):
    """Writes all that was SET so far to the file: a reload reads it anew."""
    adapted.add("set")
    bouncer.was_set[setting[0]] = setting[1]
    bouncer.write_ini("[pgbouncer]")
    for name, value in bouncer.was_set.items():
        bouncer.write_ini(f"{name} = {value}")
    bouncer.admin("reload")


def setting_of(query):
    words = re.fullmatch(r"\s*set\s+(\w+)\s*(?:=|to)\s*(.*?)\s*;?\s*", query, re.IGNORECASE | re.DOTALL)
    if not words:
        return None
    value = words[2]
    return words[1].lower(), value[1:-1].replace("''", "'") if value.startswith("'") else value


if is_weir:
    plain_raises, plain_init = pytest.raises, utils.Bouncer.__init__
    plain_admin, plain_aadmin, plain_sighup = utils.Bouncer.admin, utils.Bouncer.aadmin, utils.Bouncer.sighup

    def init(self, *args, **kwargs):
        plain_init(self, *args, **kwargs)
        self.was_set = {}

    def admin(self, query, **kwargs):
        if is_reload(query):
            try:
                translate(self)
                return plain_admin(self, query, **kwargs)
            except psycopg.errors.ConfigFileError as error:
                print(f"not reloaded: {error}")
                return None
        setting = isinstance(query, str) and setting_of(query)
        if not setting:
            return plain_admin(self, query, **kwargs)
        notices = []
        with self.admin_runner.conn() as conn:
            conn.add_notice_handler(lambda notice: notices.append(notice.message_primary))
            try:
                conn.execute(query)
            except psycopg.errors.InvalidParameterValue:
                # A key and its certificate are changed by two commands, and fit again after the second one.
                if not setting[0].endswith(("_tls_key_file", "_tls_cert_file")):
                    raise
                return set_again(self, setting)
        if notices:
            return set_again(self, setting)
        self.was_set[setting[0]] = setting[1]
        return None

    def aadmin(self, query, **kwargs):
        if is_reload(query):
            translate(self)
        return plain_aadmin(self, query, **kwargs)

    def sighup(self):
        translate(self)
        plain_sighup(self)

    pytest.raises = raises
    utils.Bouncer.__init__ = init
    utils.Bouncer.admin = admin
    utils.Bouncer.aadmin = aadmin
    utils.Bouncer.sighup = sighup
    utils.Bouncer.log_contains = log_contains


def pytest_collection_modifyitems(items):
    if os.environ.get("WEIR_TESTS_NETEM") == "no":
        for item in items:
            if item.name.endswith("_latency"):
                item.add_marker(pytest.mark.skip(reason="the kernel cannot slow traffic down (netem)"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.adapted = sorted(adapted)
    if report.when == "teardown":
        adapted.clear()


def pytest_runtest_logreport(report):
    # A process for each job reports to the first one.
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" or not report.passed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr or "")
        line = {
            "test": report.nodeid,
            "when": report.when,
            "outcome": report.outcome,
            "adapted": getattr(report, "adapted", []),
            "reason": reason,
        }
        with open(results, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
