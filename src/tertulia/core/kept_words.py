"""What people ask to be remembered: found by their words, and kept in them.

Whoever sums up a talk again and again loses single words of it. So what was said with "remember" or
"from now on" stands at the head of a summary as it was said, and is carried from one summary into
the next by these functions, never by a model. They must not let it outgrow its share of the room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tertulia.core.lexicon import Lexicon, words_of
from tertulia.core.remembering import shortened_to

# Stands before what is kept, in a message of the user. A changed word changes what is read of
# summaries that are stored.
KEPT_HEAD: Final = "What I asked you to remember, in my own words:"
_MARK: Final = "- "

# A few sentences: who has more to say in one message asks for some of it to be remembered.
KEPT_CHARS: Final = 240
# Of one message, the first ones: a pasted text may say "remember" on every page.
KEPT_OF_MESSAGE: Final = 3
# The rest of a summary's room is for what was talked about.
KEPT_SHARE: Final = 2

_KEEP: Final = words_of(
    """
    remember memorize memorise
    vergiss onthoud
    recuerda recuerde recordad
    retiens retenez désormais
    ricorda ricordati ricordate
    lembra lembre
    запомни запомните помни помните отныне
    zapamiętaj zapamiętajcie pamiętaj
    hatırla unutma unutmayın
    """,
    """
    don't forget, do not forget, keep in mind, bear in mind, make a note, from now on,
    merk dir, merke dir, merkt euch, merken sie sich, denk daran, denk dran, denken sie daran,
    vergessen sie nicht, ab jetzt, ab sofort, von nun an,
    no olvides, no olvide, ten en cuenta, tenga en cuenta, de ahora en adelante, a partir de ahora,
    souviens-toi, souvenez-vous, rappelle-toi, rappelez-vous, n'oublie, garde en tête,
    gardez en tête, à partir de maintenant,
    non dimenticare, tieni a mente, tenga a mente, d'ora in poi, da ora in poi,
    não esqueça, não te esqueças, tenha em mente, de agora em diante, a partir de agora,
    не забудь, не забывай, имей в виду, имейте в виду, с этого момента,
    nie zapomnij, miej na uwadze, od teraz, vergeet niet, houd er rekening mee, vanaf nu,
    aklında tut, aklınızda tut, bundan sonra, bundan böyle,
    记住, 記住, 记得, 記得, 别忘, 別忘, 不要忘, 从现在起, 從現在起, 从现在开始, 從現在開始,
    覚えて, 忘れないで, 今後は, これからは, 기억해, 잊지 마, 지금부터, 앞으로는,
    تذكر, لا تنس, من الآن فصاعد, याद रख, मत भूल, अब से
    """,
)
_LEXICON: Final = Lexicon(_KEEP)
_WORD: Final = re.compile(r"[^\W\d_]+")


def asked_to_keep(said: str, *, split: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """What a message asks to be remembered: all of a short one, of a long one the sentences that
    ask and those beside them. `split` cuts a text into sentences, losing nothing."""
    if not _asks(said):
        return ()
    if len(said) <= KEPT_CHARS:
        return (_line(said),)
    sentences = split(said)
    around = [
        "".join(sentences[max(0, n - 1) : n + 2])
        for n, sentence in enumerate(sentences)
        if _asks(sentence)
    ]
    return tuple(
        _line(shortened_to(one, KEPT_CHARS, count=len)) for one in around[:KEPT_OF_MESSAGE]
    )


def _asks(text: str) -> bool:
    folded = text.casefold().replace("’", "'")
    return any(_LEXICON.counts(set(_WORD.findall(folded)), folded))


def _line(text: str) -> str:
    return " ".join(text.split())


def carried(
    older: Sequence[str], newer: Sequence[str], *, room_tokens: int, count: Callable[[str], int]
) -> tuple[str, ...]:
    """What is kept of both, each once and the newest last. Where room is short the oldest go: who
    says something else later means that. `count` counts the tokens of a text."""
    kept: list[str] = []
    for line in dict.fromkeys((*older, *newer)[::-1]):
        if count(with_kept([line, *kept], "")) <= room_tokens:
            kept.insert(0, line)
    return tuple(kept)


def with_kept(kept: Sequence[str], rest: str) -> str:
    """A summary: what is kept, and then the rest."""
    if not kept:
        return rest
    head = "\n".join((KEPT_HEAD, *(_MARK + line for line in kept)))
    return f"{head}\n\n{rest}" if rest else head


def parted(summary: str) -> tuple[tuple[str, ...], str]:
    """What a summary keeps, and its rest."""
    head, _, rest = summary.partition("\n\n")
    first, *lines = head.split("\n")
    if first != KEPT_HEAD or not lines or not all(line.startswith(_MARK) for line in lines):
        return (), summary
    return tuple(line.removeprefix(_MARK) for line in lines), rest
