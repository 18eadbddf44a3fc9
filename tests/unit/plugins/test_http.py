"""The spec of http, the commands of its tools, and the parsing of their output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Output, Part
from node.plugins.tests.http import TEST, HttpSpec
from node.plugins.tools import curl, fetch
from tests.golden.recorded import cases, output
from tests.unit.plugins.parts import context, printed, spec

MS = 1_000_000
PHASES = {"name": MS, "connect": 20 * MS, "first_byte": 30 * MS, "transfer": 5 * MS}
FETCHED = {
    "url": "https://b.example/",
    "address": "192.0.2.2",
    "status": 200,
    "protocol": "HTTP/1.1",
    "phases_ns": PHASES | {"tls": 40 * MS},
    "total_ns": 97 * MS,
    "redirects": 0,
    "redirect_ns": 0,
    "bytes": 1256,
    "complete": True,
}


def read(case: str, **fields: Any) -> dict[str, Any]:
    """Return a recorded case of curl."""
    return curl.TOOL.read(context("http", **fields), output("curl", case))


@pytest.mark.parametrize(
    "url",
    [
        "-oX",
        "b.example",
        "ftp://b.example/",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "http://-x/",
        "http://a b/",
        "http://a/b c",
        "http://a/\nHost: b",
        "http://b.example/größe",
        "http://\uff42.example/",
        "http://user:secret@b.example/",
        "http://b.example:0/",
        "http://b.example:99999/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://b.example/#part",
        "http://$(id)/",
        "http://b.example/" + "x" * 2000,
        7,
    ],
)
def test_invalid_urls(url: object) -> None:
    """Only plain http and https URLs without a password are accepted."""
    with pytest.raises(ValidationError):
        HttpSpec.model_validate({"url": url})


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"Host": "x"}},
        {"headers": {"accept-encoding": "gzip"}},
        {"headers": {"A b": "x"}},
        {"headers": {"A": "x\r\nB: y"}},
        {"headers": {"A": "x\n"}},
        {"headers": {"A": ""}},
        {"headers": {"A": "größer"}},
        {"headers": {"A": "1", "a": "2"}},
        {"headers": {f"A{at}": "x" for at in range(11)}},
        {"headers": {"A": "x"}, "redirects": 1},
        {"method": "POST"},
        {"method": "HEAD", "text": "x"},
        {"text": ""},
        {"text": "x" * 1001},
        {"status": 99},
        {"bytes_max": 0},
        {"bytes_max": 8_000_001},
        {"timeout": "PT6M"},
        {"redirects": 21},
        {"verify": "no"},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Headers that would break a request, and contradictory specs, are refused."""
    with pytest.raises(ValidationError):
        HttpSpec.model_validate({"url": "http://b/"} | wrong)


def test_redirects_and_headers() -> None:
    """Five redirects are followed by default, but none with headers, which are for one host."""
    assert spec("http").redirects_followed == 5
    assert spec("http", redirects=2).redirects_followed == 2
    assert spec("http", headers={"A": "b"}).redirects_followed == 0


@pytest.mark.parametrize("tool", [curl.TOOL, fetch.TOOL])
def test_headers_are_in_no_argv(tool: curl.CurlTool | fetch.FetchTool) -> None:
    """Headers go to standard input; an argv is kept with the result."""
    command = tool.command(context("http", headers={"X-Key": "s3cret"}))
    assert "s3cret" not in " ".join(command.argv)
    assert b"s3cret" in command.stdin
    assert tool.command(context("http")).stdin == b""


def test_the_argv_of_curl() -> None:
    """The spec's fields become curl's options; the address is the node's."""
    argv = curl.TOOL.command(
        context("http", url="https://b.example:8443/[x]?a=$(id)", ip_version=6, verify=False)
    ).argv
    assert argv[:3] == ("curl", "-q", "--silent")
    assert argv[-2:] == ("--url", "https://b.example:8443/[x]?a=$(id)")
    assert {"--globoff", "--insecure", "--ipv6", "--location"} <= set(argv)
    assert argv[argv.index("--connect-to") + 1] == "b.example::192.0.2.2:"
    assert argv[argv.index("--max-time") + 1] == "10.000"
    assert argv[argv.index("--output") + 1] == "/dev/null"


def test_the_argv_of_curl_when_less_is_asked() -> None:
    """A text is searched in standard output; options are only used where needed."""
    part = context("http", url="http://[2001:db8::1]/", text="x", redirects=0)
    argv = curl.TOOL.command(part).argv
    assert not {"--output", "--location", "--insecure", "--header", "--connect-to"} & set(argv)
    assert "--head" in curl.TOOL.command(context("http", method="HEAD")).argv


def test_the_arguments_of_fetch() -> None:
    """The program gets the URL, the address of its host, and the instant to begin."""
    part = context("http", text="it works")
    params = json.loads(fetch.TOOL.command(part).argv[-1])
    assert (params["url"], params["address"]) == ("https://b.example/", "192.0.2.2")
    assert (params["text"], params["redirects"], params["timeout_ns"]) == (
        "it works",
        5,
        10_000 * MS,
    )
    assert params["first_ns"] == part.starts * 1000


@pytest.mark.parametrize("tool", [curl.TOOL, fetch.TOOL])
def test_the_booked_time(tool: curl.CurlTool | fetch.FetchTool) -> None:
    """The booked time is set-up, the spec's timeout, and wrap-up."""
    assert tool.duration(spec("http", timeout="PT3S")) == 4 * SECOND


def test_a_fetched_page() -> None:
    """A result has phases in milliseconds, a summary, and series with the total time first."""
    result = fetch.TOOL.read(context("http"), printed(FETCHED))
    assert result["phases_ms"] == {
        "name": 1,
        "connect": 20,
        "tls": 40,
        "first_byte": 30,
        "transfer": 5,
    }
    assert TEST.summary(result) == "200 OK in 97.00 ms, first byte after 30.00 ms, 1256 bytes"
    series = [(it.name, it.labels.get("phase"), it.value) for it in TEST.metrics(result)]
    assert series[0] == ("total_ms", None, 97)
    assert ("phase_ms", "tls", 40) in series


@pytest.mark.parametrize(
    ("fields", "told", "reason"),
    [
        ({}, {"status": 404}, "192.0.2.2 answered 404 Not Found"),
        ({}, {"status": 499}, "192.0.2.2 answered 499"),
        ({"status": 301}, {}, "192.0.2.2 answered 200 OK where 301 was expected"),
        ({"text": "x"}, {"matched": False}, "'x' is not in the body"),
        (
            {"text": "x"},
            {"matched": False, "complete": False},
            "'x' is not in the first 1256 bytes of the body",
        ),
        ({"text": "x"}, {"matched": True}, None),
        ({}, {"status": None, "failure": "no answer"}, "no answer"),
    ],
)
def test_reasons(fields: dict[str, Any], told: dict[str, Any], reason: str | None) -> None:
    """A deviation from the spec is the run's reason, and the result is kept."""
    part = context("http", **fields)
    merged = TEST.merge(part.spec, [Part(0, "a", fetch.TOOL.read(part, printed(FETCHED | told)))])
    assert merged.reason == reason
    assert merged.result is not None
    assert TEST.summary(merged.result)


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": None},
        {"total_ns": -1},
        {"total_ns": float("nan")},
        {"phases_ns": {"name": "soon"}},
        {"bytes": 10**9},
        {"url": 5},
    ],
)
def test_impossible_output_of_fetch(wrong: dict[str, Any]) -> None:
    """Negative times, too many bytes, and output without answer or failure are refused."""
    with pytest.raises(ToolOutputError):
        fetch.TOOL.read(context("http"), printed(FETCHED | wrong))


@pytest.mark.parametrize("case", cases("curl"))
def test_every_recorded_curl_is_a_result(case: str) -> None:
    """Every recorded curl gives a result with a summary, whatever happened at the target."""
    result = read(case)
    assert (result["failure"] is None) == (
        case in {"error", "head", "plain", "redirected", "tls", "too-large"}
    )
    assert TEST.summary(result)


def test_the_report_of_curl() -> None:
    """Status, phases, redirects and reasons are read from the recordings."""
    assert read("plain", text="it works")["matched"] is True
    assert read("plain", text="it fails")["matched"] is False
    assert read("tls")["phases_ms"]["tls"] > 0
    redirected = read("redirected")
    assert (redirected["redirects"], redirected["status"]) == (2, 200)
    phases = redirected["phases_ms"]
    assert (
        sum(phases[it] for it in ("name", "connect", "first_byte", "transfer"))
        <= (redirected["total_ms"])
    )
    assert (read("too-large")["complete"], read("head")["body_bytes"]) == (False, 0)
    assert read("expired")["failure"] == "SSL certificate problem: certificate has expired"
    assert read("unknown-host")["phases_ms"]["name"] is None
    assert read("timed-out")["status"] is None


def _told(**changes: Any) -> Output:
    real = output("curl", "plain")
    return Output(0, real.stdout, json.dumps(json.loads(real.stderr) | changes).encode())


@pytest.mark.parametrize(
    ("printed_", "sentence"),
    [
        (Output(2, b"", b"curl: option --x: is unknown"), "curl: option --x: is unknown"),
        (Output(-15, b"", b"", "end"), "curl had not finished at the end of the run"),
        (Output(0, b"", b""), "printed nothing"),
        (_told(time_connect=-1), "time_connect"),
        (_told(time_total=0.00001), "contradicts itself"),
        (_told(exitcode=27, errormsg="Out of memory"), "curl: Out of memory"),
        (_told(http_code=0), "neither an answer nor a failure"),
        (_told(http_code="200"), "http_code"),
    ],
)
def test_output_that_does_not_concern_the_target(printed_: Output, sentence: str) -> None:
    """Output that does not concern the target is refused, cause first."""
    with pytest.raises(ToolOutputError, match=sentence):
        curl.TOOL.read(context("http"), printed_)


def test_foreign_text_is_made_harmless() -> None:
    """A target's text is stored without control characters, and truncated."""
    report = _told(exitcode=1, errormsg="a\x1b[2J\x00" + "b" * 5000)
    failure = curl.TOOL.read(context("http"), report)["failure"]
    assert failure.startswith("a\ufffd[2J\ufffdb")
    assert len(failure) == 1000
