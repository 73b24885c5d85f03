from tests.support.fixtures import engine, lab, pytest_runtest_makereport

__all__ = ["engine", "lab", "pytest_runtest_makereport"]
