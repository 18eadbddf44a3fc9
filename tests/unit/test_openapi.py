"""The description of the API is valid, whole, and readable for people and generators."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from node.api.app import ROUTES
from node.api.examples import EXAMPLES
from node.api.openapi import TAGS, openapi_document
from node.api.problem_types import PROBLEM_TYPES
from node.model.errors import ParleyError
from node.model.wire.fields import FROM_OUTSIDE, Document
from node.model.wire.problems import problem_of
from node.plugins.registry import tests as registered_tests

Json = Any


@pytest.fixture(scope="module")
def whole() -> Json:
    """Return the document."""
    return openapi_document(ROUTES, "1.2.3", registered_tests())


def operations(whole: Json) -> Iterator[tuple[str, Json]]:
    """Yield each operation with its method and path."""
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def defaults(schema: Json) -> Iterator[Json]:
    """Yield all schemas that have a default."""
    if isinstance(schema, dict):
        if "default" in schema and "type" in schema:
            yield schema
        for inner in schema.values():
            yield from defaults(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from defaults(inner)


def test_it_is_a_valid_document(whole: Json) -> None:
    """It conforms to OpenAPI 3.1, by a validator of others."""
    assert [str(error) for error in OpenAPIV31SpecValidator(whole).iter_errors()] == []


def test_defaults_are_written_as_documents_write_them(whole: Json) -> None:
    """No duration is described with a number of microseconds as its default."""
    wrong = [each for each in defaults(whole) if each["type"] == "string" and each["default"] == 0]
    assert wrong == []
    for each in defaults(whole):
        if each["type"] == "string":
            assert isinstance(each["default"], str), each


def test_every_operation_is_described(whole: Json) -> None:
    """Each has a tag that is explained, a sentence, and says which token it takes."""
    explained = {tag["name"] for tag in whole["tags"]}
    for name, operation in operations(whole):
        assert set(operation["tags"]) <= explained, name
        assert operation["description"].rstrip().endswith("."), name
        roles = [scope for need in operation["security"] for scope in need.get("token", [])]
        assert all(f"role `{role}`" in operation["description"] for role in roles), name
    assert explained == {tag for tag, _ in TAGS.values()}


def test_every_operation_tells_its_answers(whole: Json) -> None:
    """Each has a schema of its success, and by status the problems that it may answer with."""
    for name, operation in operations(whole):
        successes = [s for s in operation["responses"] if s.startswith("2")]
        assert successes, name
        for status in successes:
            content = operation["responses"][status].get("content", {})
            assert status == "204" or all(each["schema"] for each in content.values()), name
        assert "default" not in operation["responses"], name
        assert {"400", "422", "500", "503"} <= set(operation["responses"]), name
        assert ("401" in operation["responses"]) is bool(operation["security"]), name
        assert ("415" in operation["responses"]) is ("requestBody" in operation), name


def test_each_posted_document_has_an_example(whole: Json) -> None:
    """A reader sees what to send."""
    for name, operation in operations(whole):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content["examples"], (name, media_type)


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_examples_are_valid(model: type[Document]) -> None:
    """An example can be sent, or be answered, as it is."""
    model.model_validate(EXAMPLES[model], context=FROM_OUTSIDE)


def test_the_spec_of_each_test_is_told_by_its_type(whole: Json) -> None:
    """A client that is made from the document knows the fields of each test."""
    schemas = whole["components"]["schemas"]
    choice = schemas["TestChoice"]
    mapping = choice["discriminator"]["mapping"]
    assert set(mapping) == set(registered_tests())
    assert [option["$ref"] for option in choice["oneOf"]] == list(mapping.values())
    option = schemas[mapping["rtt"].rsplit("/", 1)[-1]]
    spec = schemas[option["properties"]["spec"]["$ref"].rsplit("/", 1)[-1]]
    assert spec["required"] == ["dest"]
    assert option["properties"]["type"]["const"] == "rtt"


def test_names_of_schemas_are_plain_words(whole: Json) -> None:
    """No two models share a name, which would put their modules into the names of types."""
    assert [name for name in whole["components"]["schemas"] if "__" in name] == []


def test_every_problem_is_in_the_document(whole: Json) -> None:
    """By status, the response has the one schema, and an example of each type of problem."""
    contents = [
        content
        for response in whole["components"]["responses"].values()
        for content in response["content"].values()
    ]
    assert {content["schema"]["$ref"] for content in contents} == {"#/components/schemas/Problem"}
    told = {each["value"]["type"] for content in contents for each in content["examples"].values()}
    assert told == {each.type for each in PROBLEM_TYPES.values()}
    assert problem_of(ParleyError("")).type in told


@pytest.mark.nightly
def test_a_generator_keeps_all_of_it(whole: Json, tmp_path: Path) -> None:
    """A client that is generated has every operation, each with its problems, without warnings."""
    description, binaries = tmp_path / "openapi.json", Path(sys.executable).parent
    description.write_text(json.dumps(whole))
    argv: list[str | Path] = [binaries / "openapi-python-client", "generate", "--path", description]
    ended = subprocess.run(
        [*argv, "--meta", "none", "--output-path", tmp_path / "generated", "--fail-on-warning"],
        env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, "arning" in ended.stdout + ended.stderr) == (0, False), ended.stdout
    made = {
        file.stem: file.read_text() for file in (tmp_path / "generated/api").glob("*/[a-z]*.py")
    }
    assert set(made) == {operation["operationId"] for _, operation in operations(whole)}
    assert [name for name, text in made.items() if "response_422 = Problem" not in text] == []


def test_each_operation_has_a_name_of_its_own(whole: Json) -> None:
    """Generators make a method of each operationId."""
    names = [operation["operationId"] for _, operation in operations(whole)]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names)
