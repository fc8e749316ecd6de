"""Defaults, ranges of values, and what a configuration shows of itself."""

import math
from typing import Any, ClassVar

import pytest

from distdual.config import Config, LocalCluster, SolverConfig, check_choice, from_table, load
from distdual.errors import InputError
from tests.config.tables import SMALLEST, refusal, table


class TestDefaults:
    def test_the_smallest_config_names_data_problem_and_output(self, file):
        config = load(file)
        assert (config.data.url, config.problem.kind, config.output.url) == ("data/train", "binary", "model")
        assert (config.solver.C, config.solver.gap, config.solver.max_seconds) == (1.0, 1e-3, math.inf)
        assert (config.cluster.scheduler, config.cluster.local) == (None, None)
        assert (config.output.overwrite, config.output.log) == (False, None)

    def test_every_key_can_be_set(self, file):
        file.write_text(
            SMALLEST.replace('kind = "binary"', 'kind = "binary"\nbias = 2')
            + "[solver]\nC = 2\ngap = 0.01\nmax_passes = 7\nmax_seconds = 60\nseed = 3\n"
            + '[cluster]\nlocal = {workers = 3, threads = 2, memory = "1.5GiB"}\ntimeout = 5\n'
        )
        config = load(file)
        assert config.solver == SolverConfig(C=2.0, gap=0.01, max_passes=7, max_seconds=60.0, seed=3)
        assert config.cluster.local == LocalCluster(workers=3, threads=2, memory="1.5GiB")
        assert config.problem.options == {"bias": 2}

    def test_a_section_and_an_inline_table_are_equivalent(self, file):
        file.write_text(SMALLEST + "[cluster.local]\nworkers = 4\n")
        assert load(file).cluster.local == LocalCluster(workers=4)

    def test_an_empty_local_table_means_a_local_cluster(self):
        assert from_table(table(cluster={"local": {}})).cluster.local == LocalCluster()

    def test_integers_are_accepted_for_floats_and_stay_exact(self):
        C = from_table(table(solver={"C": 3})).solver.C
        assert (C, type(C)) == (3.0, float)

    def test_a_byte_order_mark_is_ignored(self, file):
        file.write_bytes(b"\xef\xbb\xbf" + SMALLEST.encode())
        assert load(file).data.url == "data/train"


class TestRanges:
    @pytest.mark.parametrize(
        ("sections", "message"),
        [
            ({"solver": {"C": 0}}, "solver.C must be positive and finite, got 0.0"),
            ({"solver": {"C": -1}}, "solver.C must be positive and finite, got -1.0"),
            ({"solver": {"C": math.inf}}, "solver.C must be positive and finite, got inf"),
            ({"solver": {"C": math.nan}}, "solver.C must be positive and finite, got nan"),
            ({"solver": {"gap": 0}}, "solver.gap must be a fraction between 0 and 1, got 0.0"),
            ({"solver": {"gap": 1}}, "solver.gap must be a fraction between 0 and 1, got 1.0"),
            ({"solver": {"gap": -0.1}}, "solver.gap must be a fraction between 0 and 1, got -0.1"),
            ({"solver": {"gap": math.nan}}, "solver.gap must be a fraction between 0 and 1, got nan"),
            ({"solver": {"max_passes": 0}}, "solver.max_passes must be at least 1, got 0"),
            ({"solver": {"max_seconds": 0}}, "solver.max_seconds must be positive, got 0.0"),
            ({"solver": {"max_seconds": math.nan}}, "solver.max_seconds must be positive, got nan"),
            ({"solver": {"seed": -1}}, "solver.seed must not be negative, got -1"),
            ({"cluster": {"timeout": 0}}, "cluster.timeout must be a positive number of seconds, got 0.0"),
            ({"cluster": {"timeout": math.inf}}, "cluster.timeout must be a positive number of seconds, got inf"),
            (
                {"cluster": {"local": {"workers": 0}}},
                "cluster.local needs at least one worker and one thread, got 0 and 1",
            ),
            (
                {"cluster": {"local": {"threads": 0}}},
                "cluster.local needs at least one worker and one thread, got 2 and 0",
            ),
            (
                {"cluster": {"local": {"memory": "lots"}}},
                'cluster.local.memory must be "auto" or a size such as "4GiB", got \'lots\'',
            ),
            (
                {"cluster": {"scheduler": "tcp://a:1", "local": {}}},
                "cluster.scheduler and cluster.local exclude each other: set one",
            ),
            ({"data": {"url": ""}}, "data.url must name a folder, got an empty string"),
            ({"output": {"url": " "}}, "output.url must name a folder, got an empty string"),
        ],
    )
    def test_a_value_out_of_range_is_refused(self, sections, message):
        assert refusal(**sections) == message

    def test_an_unknown_mode_is_refused_with_the_known_ones(self):
        message = refusal(solver={"mode": "magic"})
        assert message.startswith("solver.mode must be one of ")
        assert message.endswith(", got 'magic'")

    @pytest.mark.parametrize("memory", ["auto", "4GiB", "512MB", "1.5 GB", "100000", "2G", "8kB"])
    def test_sizes_in_dasks_notation_are_accepted(self, memory):
        from dask.utils import parse_bytes

        assert LocalCluster(memory=memory).memory == memory
        assert memory == "auto" or parse_bytes(memory) > 0

    def test_a_wrong_choice_is_refused_with_all_choices(self):
        check_choice("x", "a", ["a", "b"])
        with pytest.raises(InputError, match=r"^x must be one of 'a', 'b', got 'c'$"):
            check_choice("x", "c", ["a", "b"])


class TestSecrets:
    OPTIONS: ClassVar[dict[str, Any]] = {
        "key": "AKIAKEY",
        "secret": "hunter22",
        "client_kwargs": {"endpoint_url": "http://x"},
    }

    def config(self) -> Config:
        return from_table(table(data={"storage_options": self.OPTIONS}, output={"storage_options": self.OPTIONS}))

    def test_storage_options_are_passed_unchanged(self):
        assert self.config().data.storage_options == self.config().output.storage_options == self.OPTIONS

    def test_no_text_form_shows_storage_options(self):
        config = self.config()
        for text in (repr(config), str(config.data), repr(config.output), repr(config.public())):
            assert "AKIAKEY" not in text
            assert "hunter22" not in text

    def test_the_public_form_makes_the_same_config_without_storage_options(self):
        config = from_table(table(problem={"bias": 1}, cluster={"local": {}}, solver={"C": 3}))
        assert from_table(config.public()) == config
        assert "storage_options" not in repr(self.config().public())

    @pytest.mark.parametrize(
        "sections",
        [
            {"data": {"storage_options": "key=AKIAKEY,secret=hunter22"}},
            {"data": {"url": {"secret": "hunter22"}}},
            {"data": {"url": "s3://AKIAKEY:hunter22@bucket/x"}},
            {"output": {"url": "s3://AKIAKEY:hunter22@bucket/x"}},
            {"solver": {"C": [{"secret": "hunter22"}]}},
        ],
    )
    def test_no_error_message_shows_storage_options(self, sections):
        message = refusal(**sections)
        assert "AKIAKEY" not in message
        assert "hunter22" not in message

    def test_no_refused_setting_shows_storage_options(self, file):
        for setting in ("data.url.secret=hunter22", "secret=hunter22", "data..secret=hunter22"):
            with pytest.raises(InputError) as caught:
                load(file, [setting])
            assert "hunter22" not in str(caught.value)

    def test_a_list_of_sections_is_refused_without_its_contents(self):
        with pytest.raises(InputError) as caught:
            from_table({**table(), "data": [{"url": "x", "storage_options": self.OPTIONS}]})
        assert str(caught.value) == "config: data must be a section, got a list"
