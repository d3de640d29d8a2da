"""The usage log: complete for a while, never larger than its bound, and never lost to a reader."""

from tertulia.replica.usage import KEPT, UsageLog


def test_a_reader_who_asks_for_what_came_after_hears_of_every_begin_and_every_end() -> None:
    log = UsageLog()
    log.begin(1, "a", 10)
    log.begin(2, "b", 20)
    first = log.listed(None, 0, 100)
    assert [(use.request_id, use.finish) for use in first] == [("a", None), ("b", None)]
    log.add(1, 1, 4, None)
    log.add(1, 1, 4, "stop")
    second = log.listed(None, first[-1].number, 100)
    assert [(use.request_id, use.finish) for use in second] == [("a", "stop")]
    assert (second[0].prompt_tokens, second[0].cached_tokens) == (10, 4)
    assert second[0].completion_tokens == 2
    assert log.listed(None, second[-1].number, 100) == []


def test_two_requests_with_one_id_are_both_kept() -> None:
    log = UsageLog()
    for key in (1, 2):
        log.begin(key, "same", key)
        log.add(key, key, 0, "abort")
    found = log.listed(frozenset({"same"}), 0, 100)
    assert [use.completion_tokens for use in found] == [1, 2]
    assert log.listed(frozenset({"other"}), 0, 100) == []


def test_a_request_under_way_is_kept_however_many_end_meanwhile() -> None:
    log = UsageLog(kept=3)
    log.begin(0, "long", 1)
    for key in range(1, 9):
        log.begin(key, f"short-{key}", 1)
        log.add(key, 1, 0, "stop")
    assert [use.request_id for use in log.listed(None, 0, 100)] == [
        "long",
        "short-6",
        "short-7",
        "short-8",
    ]
    log.add(0, 5, 0, "length")
    assert log.listed(frozenset({"long"}), 0, 100)[0].completion_tokens == 5


def test_the_ring_holds_ten_thousand_and_an_answer_as_many_as_asked() -> None:
    log = UsageLog()
    for key in range(KEPT + 5):
        log.begin(key, str(key), 1)
        log.add(key, 0, 0, "stop")
    assert len(log.listed(None, 0, 10**9)) == KEPT
    page = log.listed(None, 0, 7)
    assert [use.request_id for use in page] == ["5", "6", "7", "8", "9", "10", "11"]
