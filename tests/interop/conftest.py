from tests.support.fixtures import lab, pytest_runtest_makereport

__all__ = ["lab", "pytest_runtest_makereport"]
