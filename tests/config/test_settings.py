from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from pydantic import Field, SecretStr, ValidationError

from mercury.config import Settings, describe, load_settings, loading, to_toml
from mercury.config.settings import AdapterSettings, BusSettings, Section
from mercury.model.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _empty_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.upper().startswith("MERCURY_")]:
        monkeypatch.delenv(variable)


def write(text: str, name: str = "mercury.toml") -> Path:
    path = Path(name)
    path.write_text(text, "utf-8")
    return path


def refusal(path: Path | None = None, overrides: dict[str, object] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, overrides)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_defaults_without_a_file() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.bus.uri == "embedded:mercury.db"
    assert settings.bus.retention_bytes == 4 * 1024**3
    assert settings.adapter.port == 7400
    assert settings.adapter.coverage is None
    assert settings.session.max_sessions == 200_000
    assert settings.client.adapter == "udp://127.0.0.1:7400"


def test_file_in_the_working_folder_is_read() -> None:
    write("[adapter]\nport = 7500\n")
    assert load_settings().adapter.port == 7500


def test_variable_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[adapter]\nport = 7500\n")
    write("[adapter]\nport = 7600\n", "other.toml")
    monkeypatch.setenv("MERCURY_CONFIG", "other.toml")
    assert load_settings().adapter.port == 7600
    assert load_settings(Path("mercury.toml")).adapter.port == 7500


def test_environment_over_file_and_flags_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('[adapter]\nport = 1001\nhost = "a"\nid = "from file"\n')
    monkeypatch.setenv("MERCURY_ADAPTER__PORT", "1002")
    monkeypatch.setenv("MERCURY_ADAPTER__HOST", "b")
    settings = load_settings(path, {"adapter.port": 1003, "adapter.id": None, "sim.seed": None})
    assert settings.adapter.port == 1003
    assert settings.adapter.host == "b"
    assert settings.adapter.id == "from file"
    assert settings.sim.seed == 1


def test_environment_reads_every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    area = '{"type": "Point", "coordinates": [0, 0]}'
    monkeypatch.setenv("MERCURY_ADAPTER__COVERAGE", area)
    monkeypatch.setenv("mercury_session__jitter", "0.5")
    monkeypatch.setenv("MERCURY_LOG__JSON_LINES", "true")
    monkeypatch.setenv("MERCURY_LOG__LEVEL", "DEBUG")
    monkeypatch.setenv("MERCURY_BUS__RETENTION_BYTES", "none")
    monkeypatch.setenv("MERCURY_BUS__URI", "")  # empty is not given, as compose files leave it
    monkeypatch.setenv("MERCURY_HOME", "not a setting of ours, and none of our business")
    settings = load_settings()
    assert settings.adapter.coverage == area
    assert settings.session.jitter == 0.5
    assert settings.log.json_lines is True
    assert settings.log.level == "debug"
    assert settings.bus.retention_bytes is None
    assert settings.bus.uri == "embedded:mercury.db"


def test_none_removes_a_limit() -> None:
    settings = load_settings(write('[bus]\nretention_age_s = "none"\n'))
    assert settings.bus.retention_age_s is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[adapter]\nprot = 1", "adapter.prot is not a setting, did you mean adapter.port?"),
        ("[adaptor]\nport = 1", "adaptor.port is not a setting, did you mean adapter.port?"),
        ("[adapter]\nport = 'x'", "adapter.port should be a valid integer, not 'x'"),
        (
            "[adapter]\nport = 65536",
            "adapter.port should be less than or equal to 65535, not 65536",
        ),
        ("[adapter]\nport = true", "adapter.port should be a number, not True"),
        ("[adapter]\nid = 7", "adapter.id should be a valid string, not 7"),
        ("[adapter]\nid = ''", "adapter.id should have at least 1 character, not ''"),
        ("[bus]\npartitions = 0", "bus.partitions should be greater than or equal to 1, not 0"),
        ("[sim]\nseed = 'none'", "sim.seed should be a valid integer, not 'none'"),
        ("[session]\njitter = nan", "session.jitter should be a finite number, not nan"),
        ("[sim]\norigin_lat = 91", "sim.origin_lat should be less than or equal to 90, not 91"),
        (
            "[sim]\nlink = 'celular'",
            "sim.link: there is no link named 'celular', did you mean cellular?",
        ),
        ("[sim]\nlink = 'loss=2'", "sim.link: loss is a share between 0 and 1, not 2"),
        (
            "[log]\nlevel = 'loud'",
            "log.level should be 'debug', 'info', 'warning' or 'error', not 'loud'",
        ),
        ("adapter = 7400", "adapter should be a table, [adapter]"),
        ("[[adapter]]\nport = 7400", "adapter should be a table, [adapter]"),
        ("port = 7400", "port is not a setting, did you mean adapter.port?"),
        ("[nonsense]", "nonsense is not a setting"),
        (
            "[broker]\nreport_interval_s = 1",
            "broker.report_interval_s is not a setting, did you mean session.report_interval_s?",
        ),
        (
            "[broker]\nemergency_radius_m = 6000",
            "broker.emergency_radius_m: emergency_radius_m = 6000.0 is above "
            "emergency_max_radius_m = 5000.0",
        ),
        (
            "[session]\ninit_retry_max_s = 0.1",
            "session.init_retry_max_s: init_retry_s = 0.5 is above init_retry_max_s = 0.1",
        ),
        (
            "[gateway]\nhigh_mark_bytes = 2000000",
            "gateway.high_mark_bytes: low_mark_bytes = 4194304 is above high_mark_bytes = 2000000",
        ),
    ],
)
def test_mistakes_in_the_file(text: str, sentence: str) -> None:
    assert refusal(write(text, "city.toml")) == f"city.toml: {sentence}"


def test_long_values_are_cut() -> None:
    sentence = refusal(write(f"[adapter]\nport = '{'9' * 5000}'"))
    assert sentence.endswith("999...")
    assert len(sentence) < 160


def test_named_file_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(Path("gone.toml")) == "gone.toml cannot be read: No such file or directory"
    monkeypatch.setenv("MERCURY_CONFIG", "gone.toml")
    assert refusal() == (
        "gone.toml, named by MERCURY_CONFIG, cannot be read: No such file or directory"
    )


def test_file_is_a_folder(tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in refusal(tmp_path)


def test_syntax_error_says_the_line() -> None:
    sentence = refusal(write("[adapter]\nport = \n"))
    assert sentence.startswith("mercury.toml is not valid TOML: ")
    assert "line 2" in sentence


def test_file_is_not_text() -> None:
    Path("mercury.toml").write_bytes(b"[adapter]\nid = '\xff'\n")
    assert refusal() == "mercury.toml is not UTF-8 text at line 2"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "MERCURY_ADAPTER__PROT",
            "1",
            "MERCURY_ADAPTER__PROT is not a setting, did you mean MERCURY_ADAPTER__PORT?",
        ),
        (
            "MERCURY_ADAPTER__PORT__X",
            "1",
            "MERCURY_ADAPTER__PORT__X is not a setting, did you mean MERCURY_ADAPTER__PORT?",
        ),
        ("MERCURY_QQQ__ZZZ", "1", "MERCURY_QQQ__ZZZ is not a setting"),
        (
            "MERCURY_ADAPTER__PORT",
            "abc",
            "MERCURY_ADAPTER__PORT should be a valid integer, not 'abc'",
        ),
        (
            "MERCURY_ADAPTER__PORT",
            "-1",
            "MERCURY_ADAPTER__PORT should be greater than or equal to 0, not '-1'",
        ),
        (
            "MERCURY_BUS",
            "embedded:x.db",
            "MERCURY_BUS names a section, its settings are MERCURY_BUS__<NAME>",
        ),
    ],
)
def test_mistakes_in_the_environment(
    variable: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert refusal() == sentence


def test_mistakes_in_flags() -> None:
    assert refusal(None, {"adapter.prot": 1}) == (
        "flag adapter.prot is not a setting, did you mean adapter.port?"
    )
    assert refusal(None, {"adapter.prot": None}).startswith("flag adapter.prot is not a setting")
    assert refusal(None, {"adapter.port": "x"}) == (
        "flag adapter.port should be a valid integer, not 'x'"
    )


def test_the_source_that_counts_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("[adapter]\nport = 1\n")
    monkeypatch.setenv("MERCURY_ADAPTER__PORT", "x")
    assert refusal(path).startswith("MERCURY_ADAPTER__PORT should")
    assert load_settings(path, {"adapter.port": 2}).adapter.port == 2


def test_describe_says_where_a_value_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("[adapter]\nport = 1\nid = 'x'\n")
    monkeypatch.setenv("MERCURY_ADAPTER__PORT", "2")
    monkeypatch.setenv("MERCURY_SIM__SEED", "7")
    lines = {
        s.name: s for s in describe(load_settings(path, {"sim.seed": 8, "sim.vehicles": None}))
    }
    assert lines["adapter.id"][1:3] == ("x", "file")
    assert lines["adapter.port"][1:3] == (2, "environment")
    assert lines["sim.seed"][1:3] == (8, "flag")
    assert lines["sim.vehicles"][1:3] == (100, "default")
    assert lines["bus.uri"].description.startswith("The topics")


def test_every_setting_is_described() -> None:
    settings = describe(Settings())
    assert {setting.name.partition(".")[0] for setting in settings} == set(Settings.model_fields)
    assert [setting.name for setting in settings if not setting.description] == []


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().adapter.port = 1


def test_explicit_settings_do_not_look_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERCURY_ADAPTER__PORT", "2")
    assert Settings().adapter.port == 7400


class GateSettings(Section):
    token: SecretStr | None = Field(default=None, description="Shared secret")
    plain: SecretStr = Field(default=SecretStr("hunter2"), description="Another")


class SecretiveSettings(Settings):
    gate: GateSettings = Field(default_factory=GateSettings)


def test_secrets_are_masked() -> None:
    settings = SecretiveSettings(
        gate=GateSettings(token=SecretStr("open sesame")),
        bus=BusSettings(uri="kafka://user:sesame@host:9092"),
    )
    lines = {setting.name: setting.value for setting in describe(settings)}
    assert lines["gate.token"] == "**********"
    assert lines["bus.uri"] == "kafka://user:**********@host:9092"
    shown = str(describe(settings)) + to_toml(settings) + repr(settings.gate)
    assert "sesame" not in shown
    assert "hunter2" not in shown
    # A mask must not be read back as the secret.
    written = tomllib.loads(to_toml(settings))
    assert written["gate"] == {}
    assert "uri" not in written["bus"]


def test_errors_do_not_show_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "Settings", SecretiveSettings)
    sentence = refusal(write("[gate]\ntoken = 12345\n"))
    assert sentence == "mercury.toml: gate.token should be a valid string"


def test_written_toml_is_read_back() -> None:
    settings = Settings(
        adapter=AdapterSettings(port=1, coverage='{"a": "\\ü\x7f\n"}', metrics_port=None),
        bus=BusSettings(retention_age_s=None, retention_bytes=10**18),
    )
    text = to_toml(settings)
    assert load_settings(write(text)).model_dump() == settings.model_dump()
    assert "# UDP port to receive packets on; 0 takes a free one\nport = 1\n" in text
    assert "\n# Durable topics\n[bus]\n" in text


def test_a_table_of_free_keys(tmp_path: Path) -> None:
    path = tmp_path / "city.toml"
    path.write_text('[pipeline.spark_conf]\n"spark.executor.memory" = "4g"\nplain = "x"\n')
    assert load_settings(path).pipeline.spark_conf == {
        "spark.executor.memory": "4g",
        "plain": "x",
    }
    written = tmp_path / "written.toml"
    written.write_text(to_toml(load_settings(path)))
    assert load_settings(written).pipeline.spark_conf == load_settings(path).pipeline.spark_conf
    shown = {one.name: (one.value, one.origin) for one in describe(load_settings(path))}
    assert shown["pipeline.spark_conf.spark.executor.memory"] == ("4g", "file")


def test_the_antenna_stands_in_the_middle_unless_told_otherwise() -> None:
    assert load_settings(write("[sim]\nwidth_m = 100\n")).sim.antenna == (50.0, 2000.0)
    told = load_settings(write("[sim]\nlink = 'wifi'\nantenna_x_m = 0\nantenna_y_m = 9\n")).sim
    assert (told.link, told.antenna) == ("wifi", (0.0, 9.0))
    assert load_settings(write("[sim]\nlink = 'wifi'\n"), {"sim.link": "none"}).sim.link is None
