"""Runs tests of unittest's kind and prints a line for each: its verdict and its name.

Arguments: names of modules, or of single tests.
"""

import sys
import unittest


class Lines(unittest.TestResult):
    def say(self, verdict, test):
        # Output of a test itself goes to stderr or stands on lines without the mark.
        print("\n@verdict", verdict, test.id(), flush=True)

    def addSuccess(self, test):
        self.say("pass", test)

    def addExpectedFailure(self, test, err):
        self.say("pass", test)

    def addSkip(self, test, reason):
        self.say("skip", test)

    def addUnexpectedSuccess(self, test):
        self.say("fail", test)

    def addFailure(self, test, err):
        self.say("fail", test)
        print(self._exc_info_to_string(err, test), flush=True)

    def addError(self, test, err):
        self.addFailure(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(test, err)


unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:]).run(Lines())
