"""How a batch is split into responses within the size limit."""

from __future__ import annotations

from tests.core.support import variant
from xdsprism.core.model.events import Absence
from xdsprism.core.model.expr import parse
from xdsprism.core.session.batch import Batch


def test_variants_of_a_name_that_just_fit_stay_together_with_what_they_replace():
    # DLT-21, DYN-24
    main = Batch(located=dict.fromkeys([variant("rds", "main[env=prod]=1"), variant("rds", "main[env=test]=1")]))
    main.withdrawn = {Absence("main", parse("env exists")): None}
    other = Batch(located={variant("rds", "other=1"): None})
    whole = Batch()
    whole.join(main)
    whole.join(other)
    parts = whole.parts(main.size)
    assert [(list(part.located), list(part.withdrawn)) for part in parts] == [
        (list(main.located), list(main.withdrawn)),
        (list(other.located), []),
    ]


def test_names_in_different_forms_share_a_response_that_has_room_for_both():
    # DLT-21, DYN-15: only one name in both forms needs two responses
    large, small, located = variant("rds", f"a={'1' * 100}"), variant("rds", "b=1"), variant("rds", "c=1")
    batch = Batch({"a": large, "b": small}, {located: None})
    parts = batch.parts(small.size + located.size)
    assert [[each.name for each in part.variants] for part in parts] == [["a"], ["b", "c"]]
