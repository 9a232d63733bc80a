"""The subject of an X.509 certificate as RFC 2253 writes it, letter by letter as Java does. Pure.

Rules (``X500Principal.getName()``, whose text is what Kafka's mapping rules and access control lists are written for):
    1. The last relative name comes first; ``,`` between relative names, ``+`` within one.
    2. An attribute has the keyword of RFC 2253 (CN, C, L, ST, O, OU, STREET, DC, UID); any other has its object
       identifier, and ``#`` with the hexadecimal digits of its value's encoding.
    3. In a text ``,=+<>#;"`` and backslash are escaped with a backslash, blanks at both ends too.
Source: RFC 2253; RFC 5280, section 4.1; the encoding is DER (X.690).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE, _SET, _OBJECT_IDENTIFIER, _VERSION = 0x30, 0x31, 0x06, 0xA0
_BMP_STRING = 0x1E
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", _BMP_STRING: "utf-16-be"}
"""Character set by the tag of UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString."""
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"
_FIELDS_BEFORE_SUBJECT = 4
"""Serial number, signature algorithm, issuer, validity; the version before them is optional."""


class MalformedCertificate(ValueError):
    """The bytes are no certificate, or its subject is no name."""


class _Element(NamedTuple):
    """One element of DER: its tag, its content, and both with the length between them."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate.

    Args:
        certificate: in DER.

    Raises:
        MalformedCertificate: see there.
    """
    to_be_signed = _one(_one(certificate, _SEQUENCE).content, _SEQUENCE)
    fields = list(_elements(to_be_signed.content))
    subject_at = _FIELDS_BEFORE_SUBJECT + (bool(fields) and fields[0].tag == _VERSION)
    if len(fields) <= subject_at:
        raise MalformedCertificate("the certificate has no subject")
    return name_of(fields[subject_at].whole)


def name_of(name: bytes) -> str:
    """Return a distinguished name, given in DER, as a text.

    Raises:
        MalformedCertificate: see there.
    """
    relative_names = list(_elements(_one(name, _SEQUENCE).content))
    return ",".join("+".join(_attributes(one)) for one in reversed(relative_names))


def _attributes(relative_name: _Element) -> Iterator[str]:
    if relative_name.tag != _SET:
        raise MalformedCertificate("a relative name is no set")
    for attribute in _elements(relative_name.content):
        parts = list(_elements(attribute.content))
        if len(parts) != 2 or parts[0].tag != _OBJECT_IDENTIFIER:
            raise MalformedCertificate("an attribute of a name is no pair of identifier and value")
        identifier, value = _identifier(parts[0].content), parts[1]
        keyword = _KEYWORDS.get(identifier)
        if keyword is None or value.tag not in _TEXTS:
            yield f"{keyword or identifier}=#{value.whole.hex()}"
        else:
            yield f"{keyword}={_escaped(value.content.decode(_TEXTS[value.tag], errors='replace'))}"


def _escaped(text: str) -> str:
    middle = text.strip(_BLANKS)
    at = text.find(middle) if middle else len(text)
    before, after = text[:at], text[at + len(middle) :]
    inner = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in middle).replace("\0", "\\00")
    return "".join(f"\\{blank}" for blank in before) + inner + "".join(f"\\{blank}" for blank in after)


def _identifier(content: bytes) -> str:
    """Return an object identifier with dots between its numbers."""
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise MalformedCertificate("an object identifier is incomplete")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _one(data: bytes, tag: int) -> _Element:
    """Return the first element, which must have this tag."""
    element = next(_elements(data), None)
    if element is None or element.tag != tag:
        raise MalformedCertificate(f"an element with tag {tag:#x} is missing")
    return element


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield the consecutive elements."""
    at = 0
    while at < len(data):
        begin, tag = at, data[at]
        if at + 2 > len(data) or tag & 0x1F == 0x1F:
            raise MalformedCertificate("an element has no length, or a tag of several bytes")
        length, at = data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise MalformedCertificate("the length of an element has more than 4 bytes, or none")
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + length > len(data):
            raise MalformedCertificate("an element is longer than the bytes that there are")
        yield _Element(tag, data[at : at + length], data[begin : at + length])
        at += length
