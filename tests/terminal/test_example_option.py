"""`--example` without a name is the bundled log that the README plans."""

from click.testing import CliRunner

from freshopt.cli import main


def test_an_example_needs_no_name() -> None:
    told = [
        CliRunner().invoke(main, ["poisson-check", *words]).output
        for words in (["--example"], ["--example", "gstreamer-plugins"], ["--example", "debian-uploads"])
    ]
    assert told[0] == told[1] != told[2]
