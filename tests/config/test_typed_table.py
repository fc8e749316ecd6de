"""Tables are parsed exactly or refused with the file, the key and what was expected."""

import pytest

from distdual.config import from_table, load, nearest
from distdual.errors import InputError
from tests.config.tables import SMALLEST, refusal, table


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
