"""The letters with which byte-level vocabularies write bytes.

It must give back every byte, also those of half a character.
"""


def bytes_of(text: str) -> bytes:
    """The bytes of a token that a byte-level vocabulary writes so."""
    return b"".join(
        bytes([_BYTE_OF[letter]]) if letter in _BYTE_OF else letter.encode() for letter in text
    )


def _byte_letters() -> dict[str, int]:
    """How byte-level vocabularies write each byte: as itself where it is printable."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_letters()
