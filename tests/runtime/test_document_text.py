"""Documents that people write: JSON and YAML with the same meaning, and a sentence for what cannot be read."""

import pytest

from adapter.runtime.document_text import TextError, read_document, read_documents


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", None),
        ('{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        ("\ufeffa: [1, 2.5, ~, true, x]", {"a": [1, 2.5, None, True, "x"]}),
        ("{a: 1, b}", {"a": 1, "b": None}),  # YAML that begins as JSON does
        ("8080: x\non: y", {"8080": "x", "on": "y"}),  # keys are texts
        ("at: 2026-01-01T12:00:00Z", {"at": "2026-01-01T12:00:00Z"}),
        ("x: &d {a: 1, b: 2}\ny: {<<: *d, a: 3}", {"x": {"a": 1, "b": 2}, "y": {"a": 3, "b": 2}}),
    ],
)
def test_document_is_read(text: str, data: object) -> None:
    assert read_document(text) == data


LAUGHS = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": {"b": 1, "b": 2}}', "the key 'b' stands in one mapping more than once; keep one of them"),
        ("a: [{b: 1, b: 2}]", "line 1: the key 'b' stands in one mapping more than once"),
        ("[" * 100_000, "is nested more than 100 levels deep"),
        ("{" * 3000 + "}" * 3000, "is nested more than 100 levels deep"),
        (LAUGHS, "more than 500000 values, aliases counted as often as they are used"),
        ("&a [*a]", "is nested more than 100 levels deep"),
        ("a: *x", "undefined alias"),
        (
            "a: !!python/object:os.system x",
            "could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:os.system'",
        ),
        ("a: !!binary aGk=", "is not YAML: "),
        ("a:\n  b: {{ .Values.c }}", "line 2: a key must be a text, not a mapping or list"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"a": 1,, "b": 2]', "is not JSON ("),
        ("a: " + "9" * 5000, "Exceeds the limit (4300 digits)"),
        ("a: b: c", "is not YAML: mapping values are not allowed"),
        ("a: 1\n---\nb: 2", "begins a second document"),
    ],
)
def test_unreadable_document_is_a_fault(text: str, fault: str) -> None:
    with pytest.raises(TextError) as caught:
        read_document(text)
    assert fault in str(caught.value)


def test_several_documents_are_read_without_empty_ones() -> None:
    assert read_documents("---\na: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_faulty_document_is_named_by_its_number() -> None:
    with pytest.raises(TextError) as caught:
        read_documents("a: 1\n---\n---\nb: 1\nb: 2\n")
    assert caught.value.document == 1
