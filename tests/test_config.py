"""Configs are parsed exactly or refused with the file, the key and what was expected."""

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from distdual.config import Config, LocalCluster, SolverConfig, apply, check_choice, from_table, load, nearest
from distdual.errors import InputError

SMALLEST = """
[data]
url = "data/train"

[problem]
kind = "binary"

[output]
url = "model"
"""


def table(**sections: dict[str, Any]) -> dict[str, Any]:
    smallest: dict[str, Any] = {
        "data": {"url": "data/train"},
        "problem": {"kind": "binary"},
        "output": {"url": "model"},
    }
    for name, keys in sections.items():
        smallest[name] = {**smallest.get(name, {}), **keys}
    return smallest


def refusal(**sections: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_table(table(**sections), "run.toml")
    message = str(caught.value)
    assert message.startswith("run.toml: ")
    assert message.count("run.toml") == 1
    return message.removeprefix("run.toml: ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(SMALLEST)
    return path


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


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("sections", "message"),
        [
            ({"solver": {"gapp": 1}}, "unknown key solver.gapp; did you mean solver.gap?"),
            ({"solver": {"c": 1}}, "unknown key solver.c; did you mean solver.C?"),
            ({"solver": {"MAX_PASSES": 1}}, "unknown key solver.MAX_PASSES; did you mean solver.max_passes?"),
            ({"solvr": {}}, "unknown key solvr; did you mean solver?"),
            ({"data": {"uri": "x"}}, "unknown key data.uri; did you mean data.url?"),
            (
                {"cluster": {"local": {"worker": 1}}},
                "unknown key cluster.local.worker; did you mean cluster.local.workers?",
            ),
            ({"data": {"q": 1}}, "unknown key data.q; known are data.retry_seconds, data.storage_options, data.url"),
        ],
    )
    def test_an_unknown_key_is_named_with_the_nearest_known_one(self, sections, message):
        assert refusal(**sections) == message

    def test_the_file_is_named_too(self, file):
        file.write_text(SMALLEST + "[solver]\ngapp = 1\n")
        with pytest.raises(InputError) as caught:
            load(file)
        assert str(caught.value) == f"{file}: unknown key solver.gapp; did you mean solver.gap?"

    def test_a_problem_checks_its_own_keys(self):
        assert from_table(table(problem={"anything": [1]})).problem.options == {"anything": [1]}

    def test_nearest_falls_back_to_everything_known(self):
        assert nearest("q", {"b": 0, "a": 0}, "x.") == "; known are x.a, x.b"


class TestMissingKeys:
    @pytest.mark.parametrize("section", ["data", "problem", "output"])
    def test_a_missing_section_is_named(self, section):
        sections = table()
        del sections[section]
        with pytest.raises(InputError, match=rf"^run.toml: {section} is missing; a run needs data.url"):
            from_table(sections, "run.toml")

    @pytest.mark.parametrize(("section", "key"), [("data", "url"), ("problem", "kind"), ("output", "url")])
    def test_a_missing_key_is_named(self, section, key):
        sections = table(problem={"bias": 1})
        del sections[section][key]
        with pytest.raises(InputError, match=rf"^run.toml: {section}.{key} is missing; a run needs"):
            from_table(sections, "run.toml")


class TestTypes:
    @pytest.mark.parametrize(
        ("sections", "message"),
        [
            ({"solver": {"C": "1"}}, "solver.C must be a number, got '1'"),
            ({"solver": {"C": True}}, "solver.C must be a number, got True"),
            ({"solver": {"C": [1]}}, "solver.C must be a number, got a list"),
            ({"solver": {"max_passes": True}}, "solver.max_passes must be a whole number, got True"),
            ({"solver": {"max_passes": 1.5}}, "solver.max_passes must be a whole number, got 1.5"),
            ({"solver": {"max_passes": 2.0}}, "solver.max_passes must be a whole number, got 2.0"),
            ({"solver": {"seed": "0"}}, "solver.seed must be a whole number, got '0'"),
            ({"output": {"overwrite": 1}}, "output.overwrite must be true or false, got 1"),
            ({"output": {"log": False}}, "output.log must be a string, got False"),
            ({"data": {"url": 3}}, "data.url must be a string, got 3"),
            ({"data": {"url": {"a": 1}}}, "data.url must be a string, got a table"),
            ({"problem": {"kind": 1}}, "problem.kind must be a string, got 1"),
            ({"cluster": {"local": 2}}, "cluster.local must be a section, got 2"),
            ({"cluster": {"local": {"workers": 2.5}}}, "cluster.local.workers must be a whole number, got 2.5"),
            ({"cluster": {"local": {"memory": 4}}}, "cluster.local.memory must be a string, got 4"),
        ],
    )
    def test_a_value_of_a_wrong_type_is_refused(self, sections, message):
        assert refusal(**sections) == message

    def test_a_number_too_large_for_a_float_is_refused(self):
        assert refusal(solver={"C": 10**400}).startswith("solver.C must be a number, got 1000")

    @pytest.mark.parametrize("value", [3, "x", [{"C": 1}]])
    def test_a_section_must_be_a_section(self, value):
        with pytest.raises(InputError, match=r"^run.toml: solver must be a section, got "):
            from_table({**table(), "solver": value}, "run.toml")
        with pytest.raises(InputError, match=r"^run.toml: problem must be a section, got "):
            from_table({**table(), "problem": value}, "run.toml")


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


class TestSettings:
    """--set section.key=value, as the command line passes it."""

    def after(self, *settings: str) -> dict[str, Any]:
        sections = table()
        for setting in settings:
            apply(sections, setting)
        return sections

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("3", 3),
            ("1e-3", 1e-3),
            ("-2.5", -2.5),
            ("inf", math.inf),
            ("true", True),
            ("false", False),
            ("True", "True"),
            ('"3"', "3"),
            ("'a b'", "a b"),
            ("word", "word"),
            ("two words", "two words"),
            ("s3://bucket/a?b=c", "s3://bucket/a?b=c"),
            ("tcp://10.0.0.1:8786", "tcp://10.0.0.1:8786"),
            ("../data/x#1", "../data/x#1"),
            ("[1, 2]", [1, 2]),
            ("{a = 1}", {"a": 1}),
            ("", ""),
            ("1\nother = 2", "1\nother = 2"),
        ],
    )
    def test_a_value_is_toml_or_else_a_plain_string(self, text, value):
        found = self.after(f"solver.x={text}")["solver"]["x"]
        assert found == value
        assert type(found) is type(value)

    def test_settings_reach_new_and_nested_tables_and_the_last_one_wins(self, file):
        config = load(file, ["solver.C=2", "cluster.local.workers=3", " solver . C = 4", "data.url=s3://b/x=y"])
        assert (config.solver.C, config.cluster.local, config.data.url) == (4.0, LocalCluster(workers=3), "s3://b/x=y")

    def test_settings_are_checked_like_the_file(self, file):
        for setting, message in [
            ("solver.gapp=1", "unknown key solver.gapp; did you mean solver.gap?"),
            ("solver.C=x", "solver.C must be a number, got 'x'"),
            ("solver.C=-1", "solver.C must be positive and finite, got -1.0"),
        ]:
            with pytest.raises(InputError) as caught:
                load(file, [setting])
            assert str(caught.value) == f"{file}: {message}"

    @pytest.mark.parametrize("setting", ["", "=", "C", "C=1", "solver", "solver.=1", ".C=1", "a..b=1", "solver.C"])
    def test_a_malformed_setting_is_refused(self, setting):
        with pytest.raises(InputError, match=r"^--set .*: expected section.key=value, for example solver.C=0.1$"):
            self.after(setting)

    def test_a_value_is_not_a_section(self):
        with pytest.raises(InputError, match=r"^--set data.url.x: url is a value, not a section$"):
            self.after("data.url.x=1")


class TestFiles:
    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(
            InputError, match=r"none.toml: cannot be read: No such file or directory; expected a TOML file$"
        ):
            load(tmp_path / "none.toml")

    def test_a_folder_is_not_a_config(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot be read: Is a directory; expected a TOML file$"):
            load(tmp_path)

    def test_invalid_toml_is_refused_with_its_line(self, file):
        file.write_text(SMALLEST + "\nC = = 1\n")
        with pytest.raises(InputError, match=rf"^{file}: not a TOML file: .*line 11"):
            load(file)

    def test_invalid_utf8_is_refused(self, file):
        file.write_bytes(b'[data]\nurl = "caf\xe9"\n')
        with pytest.raises(InputError, match=rf"^{file}: not a TOML file: .*utf-8"):
            load(file)


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


@pytest.mark.parametrize(
    ("settings", "log"),
    [
        ([], "runs/a/run.jsonl"),
        (["output.url=elsewhere/model"], "elsewhere/model.jsonl"),
        (["output.url=s3://bucket/models/b"], "runs/a/b.jsonl"),
        (["output.url=elsewhere/model", "output.log=mine.jsonl"], "mine.jsonl"),
        (["output.url=runs/a/model"], "runs/a/run.jsonl"),
    ],
)
def test_a_run_elsewhere_logs_elsewhere(tmp_path, settings, log):
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nurl = "data"\n[problem]\nkind = "binary"\n[output]\nurl = "runs/a/model"\nlog = "runs/a/run.jsonl"\n'
    )
    assert load(file, settings).output.log == log
