"""Texts that are no URLs are faults wherever somebody writes a URL, and never a fault of ours."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from node.model.loopback import is_exposed
from node.model.nodekinds import pscheduler_identity
from node.model.oidc import fault_of_issuer
from node.model.urls import split_url
from node.model.wire import fields, nodes
from node.pscheduler.archives import to_parley
from node.pscheduler.refusals import Refusal
from node.runtime.settings import Settings

NONE = [
    "http://[::1",
    "https://[::1",
    "http://[",
    "http://]",
    "https://a:99999",
    "http://",
]
ODD_HOSTS = ["[::1", "[", "a]", "[1:2]"]


@pytest.mark.parametrize("text", NONE)
def test_a_text_that_is_no_url_is_a_fault(text: str) -> None:
    """A broken host or port is a fault of a field, of a setting, or of an archive."""
    assert split_url(text) is None
    for field in (nodes.Url, nodes.UrlToAdd, fields.Url):
        with pytest.raises(ValidationError):
            TypeAdapter(field).validate_python(f"{text}/" if field is fields.Url else text)
    assert is_exposed(text)
    assert fault_of_issuer(text) is not None
    assert pscheduler_identity(f"{text}/pscheduler") is None
    with pytest.raises(Refusal):
        to_parley({"archiver": "http", "data": {"_url": text}})
    for name in ("url", "oidc_issuer"):
        given = {name: text, "oidc_audience": "a", "oidc_roles": "{}"}
        with pytest.raises(ValidationError):
            Settings.model_validate(given)


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_host_that_is_none_is_a_fault(host: str) -> None:
    """A place to listen with a broken host is a fault of its setting."""
    for name in ("listen", "pscheduler_listen"):
        with pytest.raises(ValidationError):
            Settings.model_validate({name: f"{host}:8642"})


def test_urls_are_split() -> None:
    """A URL is told in parts, with the address of its host and its port."""
    parts = split_url("https://[2001:db8::1]:8642/x?y")
    assert parts is not None
    assert (parts.hostname, parts.port, parts.path) == ("2001:db8::1", 8642, "/x")
