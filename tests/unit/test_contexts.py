"""Contexts: how they are written, who may use them, and with which tools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.execution.catalog import Capabilities
from node.model.contexts import Context, offered_contexts, parse
from node.model.wire.tasks import TaskDocument
from node.plugins.binding import binding_arguments, source_arguments, version_of
from node.plugins.contracts import PartContext, Party, Requirement
from node.plugins.registry import tools
from node.plugins.tests.http import HttpSpec
from node.plugins.tests.rtt import RttSpec
from node.plugins.tests.tcp import TcpSpec
from node.plugins.tests.throughput import ThroughputSpec
from node.runtime.settings import Settings


@pytest.mark.parametrize(
    "written",
    [
        *("namespace:wa", "namespace:newAns", "interface:eth0.100", "interface:ETH0"),
        *("address:192.0.2.7", "address:2001:db8::7"),
    ],
)
def test_contexts_are_written_as_they_are_read(written: str) -> None:
    """A context has a kind, a colon, and a name, and its text parses to itself."""
    assert str(parse(written)) == written


@pytest.mark.parametrize(
    "written",
    [
        *("", "wa", "namespace", "namespace:", "interface:-I", "interface:e/../x", "bridge:x"),
        *("namespace:..", "namespace:$(reboot)", "interface:\uff45th0"),
        *(
            "address:host",
            "address:192.0.2.7/24",
            "address:",
            "address:fe80::1%e",
            f"namespace:{'x' * 32}",
        ),
    ],
)
def test_what_is_no_context_is_refused(written: str) -> None:
    """Texts that could be an option, a path, or shell code are refused."""
    with pytest.raises(ValueError, match=r"not a (valid )?context|not an IP address"):
        parse(written)


@given(st.text(max_size=50))
def test_any_text_is_a_context_or_refused(text: str) -> None:
    """Any text is either refused, or parses to a context that is written the same way."""
    try:
        context = parse(text)
    except ValueError:
        return
    assert parse(str(context)) == context
    assert not context.name.startswith(("-", ".", "/"))


def test_the_owner_names_them() -> None:
    """The owner lists contexts, optionally with another address by which others reach them."""
    settings = Settings(contexts="namespace:wa=192.0.2.1 interface:eth1")
    assert settings.allowed_contexts == {
        parse("namespace:wa"): "192.0.2.1",
        parse("interface:eth1"): None,
    }
    assert Settings().allowed_contexts == {}
    for wrong in ("eth1", "namespace:wa=host", "namespace:wa,interface:eth1"):
        with pytest.raises(ValidationError, match="contexts"):
            Settings(contexts=wrong)


def test_cards_offer_them_with_their_addresses() -> None:
    """Contexts are attributes of the card, so that pools can match them."""
    card = {"tool:ping": True, "context:namespace:wa": "192.0.2.1", "country": "DE"}
    assert offered_contexts(card) == {"namespace:wa": "192.0.2.1"}


def test_a_pool_has_no_contexts() -> None:
    """A pool task has no contexts, because its nodes are not known yet."""
    document = {"test": {"type": "rtt"}, "contexts": {"a": "interface:eth1"}}
    assert TaskDocument.model_validate(document).contexts == {"a": "interface:eth1"}
    with pytest.raises(ValidationError, match="nodes of a pool are chosen later"):
        TaskDocument.model_validate({**document, "participants": {"pool": "europe", "k": 2}})


class _Unbindable:
    """A tool that does not say that it can be bound."""

    name = "fixed"
    tests: tuple[str, ...] = ("rtt",)
    preference = 9
    requirement: Requirement | None = None
    tried: tuple[str, ...] = ()

    def can(self, spec: object) -> str | None:  # noqa: ARG002 - contract
        """Accept any spec."""
        return None


def test_only_a_tool_that_can_be_bound_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any tool can run in a namespace; for an interface it must be able to bind itself."""
    every = {"ping": tools()["ping"], "fixed": _Unbindable()}
    monkeypatch.setattr("node.plugins.registry.tools", lambda: every)
    monkeypatch.setattr(Capabilities, "refusal", lambda *_: None)
    capabilities, spec = Capabilities(), RttSpec(dest="192.0.2.1")
    assert capabilities.offers("rtt", spec) == (("fixed", "ping"), {})
    assert capabilities.offers("rtt", spec, (), parse("namespace:wa"))[0] == ("fixed", "ping")
    bound = {"fixed": "cannot be bound to an interface"}
    assert capabilities.offers("rtt", spec, (), parse("interface:eth1")) == (("ping",), bound)


def _part(spec: object, context: Context | None) -> PartContext:
    device = None if context is None else context.device
    near = Party("a", "192.0.2.1", device=device)
    far = Party("b", "192.0.2.2", {"port": 5000})
    return PartContext(spec, 0, (near, far), 0, 10**7, {"b": "192.0.2.2"}, context)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("interface:eth1", ("-I", "eth1")),
        ("address:192.0.2.1", ("-I", "192.0.2.1")),
        ("namespace:wa", ()),
        (None, ()),
    ],
)
def test_ping_is_bound_by_its_own_option(written: str | None, words: tuple[str, ...]) -> None:
    """The program ping is bound with its own option, and needs none in a namespace."""
    context = None if written is None else parse(written)
    argv = tools()["ping"].command(_part(RttSpec(dest="b"), context)).argv
    there = argv[argv.index("-I") : argv.index("--")] if "-I" in argv else ()
    assert there == words


def test_iperf3_is_bound_to_address_and_device() -> None:
    """iperf3 is bound to the context's address and to its device."""
    spec = ThroughputSpec(source="a", dest="b")
    argv = tools()["iperf3"].command(_part(spec, parse("interface:eth1"))).argv
    assert " -B 192.0.2.1 --bind-dev eth1 " in " ".join(argv)
    assert "--bind-dev" not in tools()["iperf3"].command(_part(spec, None)).argv


@pytest.mark.parametrize(
    ("written", "told", "words"),
    [
        ("interface:eth1", {"device": "eth1", "source": None, "ip_version": None}, ["-i", "eth1"]),
        (
            "address:192.0.2.1",
            {"device": None, "source": "192.0.2.1", "ip_version": 4},
            ["-s", "192.0.2.1"],
        ),
        (
            "address:2001:db8::1",
            {"device": None, "source": "2001:db8::1", "ip_version": 6},
            ["-s", "2001:db8::1"],
        ),
        ("namespace:wa", {"device": None, "source": None, "ip_version": None}, []),
        (None, {"device": None, "source": None, "ip_version": None}, []),
    ],
)
def test_what_binds_is_told_to_each_in_its_own_way(
    written: str | None, told: dict[str, object], words: list[str]
) -> None:
    """Our own programs are bound by arguments, others by options that fit the address family."""
    part = _part(TcpSpec(dest="b", port=80), None if written is None else parse(written))
    assert source_arguments(part) == told
    assert binding_arguments(part, "-i", "-s") == words


def test_the_specs_version_of_ip_has_the_last_word() -> None:
    """An IP version in the spec overrides the context, and the missing address is the reason."""
    part = _part(TcpSpec(dest="b", port=80, ip_version=6), parse("address:192.0.2.1"))
    assert version_of(part) == 6


def test_curl_is_told_what_kind_it_is() -> None:
    """The program curl is told the kind of binding, or it would look for an interface first."""
    for written, words in (
        ("interface:eth1", "--interface if!eth1"),
        ("address:192.0.2.1", "--ipv4 --interface host!192.0.2.1"),
    ):
        part = _part(HttpSpec(url="http://192.0.2.2/"), parse(written))
        assert f" {words} " in " ".join(tools()["curl"].command(part).argv)
