"""Limits on the shards that the tasks of one process read ahead."""

import contextlib
import threading

from distdual.scan.shard_reader import MOST_AHEAD, ROOM_BYTES, ROOM_SHARE, Prefetch


class TestPrefetch:
    def test_reading_ahead_stops_where_reading_is_as_fast_as_computing(self):
        prefetch = Prefetch(1)
        assert prefetch.useful_ahead == MOST_AHEAD
        for _ in range(50):
            prefetch.learn(0.25, 0.1)
        assert prefetch.useful_ahead == 3
        for _ in range(50):
            prefetch.learn(0.01, 1.0)
        assert prefetch.useful_ahead == 1

    def test_one_shard_more_than_are_computed_on_always_fits(self):
        prefetch = Prefetch(2)
        with prefetch.room(ROOM_BYTES), prefetch.room(ROOM_BYTES), prefetch.room(ROOM_BYTES):
            assert not prefetch.fits(1)
        assert prefetch.fits(10 * ROOM_BYTES)

    def test_small_shards_are_limited_in_number_too(self):
        prefetch = Prefetch(1)
        with contextlib.ExitStack() as shards:
            for _ in range(MOST_AHEAD):
                shards.enter_context(prefetch.room(0))
            assert prefetch.fits(1)
            assert not prefetch.fits(ROOM_BYTES + 1)
            shards.enter_context(prefetch.room(0))
            assert not prefetch.fits(1)

    def test_a_waiting_task_gets_the_room_that_another_frees(self):
        prefetch, inside = Prefetch(1), threading.Event()

        def enter() -> None:
            with prefetch.room(ROOM_BYTES):
                inside.set()

        with prefetch.room(ROOM_BYTES):
            with prefetch.room(ROOM_BYTES):
                thread = threading.Thread(target=enter)
                thread.start()
                assert not inside.wait(0.2)
            assert inside.wait(10)
        thread.join()

    def test_room_is_a_share_of_the_memory_limit(self):
        assert Prefetch(1, 2**30).room_bytes == ROOM_SHARE * 2**30
        assert Prefetch(1, 2**40).room_bytes == Prefetch(1).room_bytes == ROOM_BYTES
