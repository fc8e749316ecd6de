"""Files and settings become a configuration, or an error that names them."""

import math
from typing import Any

import pytest

from distdual.config import LocalCluster, apply, load
from distdual.errors import InputError
from tests.config.tables import SMALLEST, table


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
