"""What is secret in a configuration, and how it is kept out of everything that is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from nemo_gym.config.keys import MISSING

if TYPE_CHECKING:
    from omegaconf import DictConfig, ListConfig

MASK = "****"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TELLING_NOTHING = (None, "", MISSING)
_ALWAYS_SECRET = _words(
    "apikey apikeys auth authentication authorization bearer cookie cookies credential credentials header headers "
    "oauth passphrase passwd password passwords pwd secret secrets"
)
_SECRET_KINDS_OF_KEY = _words("access api auth license private secret service signing ssh subscription")
_HARMLESS_KINDS_OF_KEY = _words(
    "answer cache column delete dict field foreign group idempotency image index input label map metric metrics "
    "output partition primary prompt public question reward row sort target task"
)
_SECRET_KINDS_OF_TOKEN = _words("access api auth bearer hf id refresh secret session")
_HARMLESS_KINDS_OF_TOKEN = _words(
    "audio begin bos chat cls end eos first image last mask max next pad prompt reasoning sep special start stop "
    "think unk video vocab"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HEADERS = frozenset({"header", "headers"})
_SCHEME = re.compile(r"(?i)(bearer|basic|token)\s+")
_TOKEN = re.compile(r"(?:(?i:bearer|basic|token)\s+)?[^\s/]{12,}")
_PAIR = re.compile(r"""(?P<key>[\w.-]+)(?P<colon>["']?\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^,{}\[\]]+)""")
_ASSIGNMENT = re.compile(r"(?P<name>(?:--?)?[A-Za-z_][\w.-]*)=(?P<value>\S+)")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_USERINFO = re.compile(r"(?<=://)[^/?#@\s]+(?=@)")


def looks_like_secret_key(name: str) -> bool:
    """Whether the values of a key with this name are secrets, judged by the words of the name.

    `openai_api_key`, `hf_token`, `X-Auth-Token` and `password` are; `max_output_tokens`, `key_metrics` and `tokenizer`
    are not.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _ALWAYS_SECRET or _is_secret_word(words, index) for index, word in enumerate(words))


def _is_secret_word(words: list[str], index: int) -> bool:
    kind = words[index - 1] if index else ""
    is_last = index == len(words) - 1
    match words[index]:
        case "key" | "keys":
            return kind in _SECRET_KINDS_OF_KEY or (is_last and kind not in _HARMLESS_KINDS_OF_KEY)
        case "token":
            return is_last and kind not in _HARMLESS_KINDS_OF_TOKEN
        case "tokens":
            return is_last and kind in _SECRET_KINDS_OF_TOKEN
    return False


def mask_userinfo(text: str) -> str:
    """The text with `user:password@` of every URL masked."""
    return _USERINFO.sub(MASK, text) if "@" in text else text


def recursively_hide_secrets(config: DictConfig | ListConfig | dict[Any, Any] | list[Any]) -> None:
    """Mask in place the values under secret keys, whatever is inside a `headers` mapping, and user names in URLs.

    Mappings are descended, never masked as a whole. Nothing, empty text and switches tell nothing and stay.
    """
    if isinstance(config, dict | list):
        _hide(config, secret=False)
        return
    from omegaconf import OmegaConf, flag_override

    plain = cast("dict[Any, Any] | list[Any]", OmegaConf.to_container(config, resolve=False))
    _hide(plain, secret=False)
    with flag_override(config, ["readonly", "struct"], False):
        for key, value in plain.items() if isinstance(plain, dict) else enumerate(plain):
            config[key] = value


def hide_secrets_in_overrides(tokens: Iterable[str]) -> list[str]:
    """Command-line overrides with the values of secret keys masked."""
    return [_hide_in_override(token) for token in tokens]


class Redactor:
    """Masks known secret values in any text.

    Values shorter than six characters are left alone: they would take ordinary words with them.
    """

    SHORTEST = 6

    def __init__(self, values: Iterable[str] = ()) -> None:
        spellings = {spelling for value in values if len(value) >= self.SHORTEST for spelling in _spellings(value)}
        ordered = sorted(spellings - {MASK}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    @classmethod
    def from_config(cls, config: DictConfig | Mapping[str, Any]) -> Redactor:
        """A redactor for every secret value a config holds, `${oc.env:…}` included where it resolves."""
        return cls(secret_values(config))

    def __call__(self, text: str) -> str:
        return mask_userinfo(self._pattern.sub(MASK, text) if self._pattern else text)

    def in_data(self, value: Any) -> Any:
        """The same plain data with every text in it masked, names of keys and numbers that are secrets included."""
        if isinstance(value, Mapping):
            return {self(key) if isinstance(key, str) else key: self.in_data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.in_data(item) for item in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return MASK if self(str(value)) == MASK else value
        return self(value) if isinstance(value, str) else value


def redacted(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """The config as plain data to show or send: resolved where possible, secrets masked by name and by value."""
    from nemo_gym.config.interpolations import tolerantly_resolved

    shown = tolerantly_resolved(config)
    recursively_hide_secrets(shown)
    return cast("dict[str, Any]", Redactor.from_config(config).in_data(shown))


def secret_values(config: DictConfig | Mapping[str, Any]) -> set[str]:
    """The secret texts of a config, resolved, to look for elsewhere.

    Of HTTP headers only what is named like a secret or looks like a token: the others are words of everyday logs.
    """
    from nemo_gym.config.interpolations import tolerantly_resolved

    return set(_secrets_in(tolerantly_resolved(config), secret=False, header=False))


def _secrets_in(value: object, *, secret: bool, header: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            named = looks_like_secret_key(str(key)) and not isinstance(item, Mapping)
            yield from _secrets_in(item, secret=secret or named, header=header or _holds_headers(str(key), item))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets_in(item, secret=secret or _follows_secret_flag(value, index), header=header)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield from _secrets_of(str(value), secret=secret or (header and _resembles_a_token(str(value))))


def _secrets_of(text: str, *, secret: bool) -> Iterator[str]:
    if secret:
        yield text
        if (scheme := _SCHEME.match(text)) is not None:
            yield text[scheme.end() :]
    elif (assigned := _secret_assignment(text)) is not None:
        yield assigned["value"]
    for userinfo in _USERINFO.findall(text):
        yield from userinfo.split(":")[1:]


def _resembles_a_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None and any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _holds_headers(key: str, value: object) -> bool:
    return isinstance(value, Mapping) and not {word.lower() for word in _WORD.findall(key)}.isdisjoint(_HEADERS)


def _guards(key: str, value: object) -> bool:
    """Whether everything below `key` is secret. A mapping is not, but for one of HTTP headers."""
    return _holds_headers(key, value) if isinstance(value, Mapping) else looks_like_secret_key(key)


def _hide(container: dict[Any, Any] | list[Any], *, secret: bool) -> None:
    items = list(container.items()) if isinstance(container, dict) else list(enumerate(container))
    for key, value in items:
        below = secret or (_guards(key, value) if isinstance(key, str) else _follows_secret_flag(container, key))
        if isinstance(value, dict | list):
            _hide(value, secret=below)
        elif below and value not in _TELLING_NOTHING and not isinstance(value, bool):
            container[key] = MASK
        elif isinstance(value, str):
            assigned = _secret_assignment(value)
            container[key] = f"{assigned['name']}={MASK}" if assigned else mask_userinfo(value)


def _secret_assignment(text: str) -> re.Match[str] | None:
    """`NAME=value` or `--name=value` as a whole text, where the name is a secret's: one of a list of arguments."""
    assigned = _ASSIGNMENT.fullmatch(text) if "=" in text else None
    return assigned if assigned is not None and looks_like_secret_key(assigned["name"]) else None


def _follows_secret_flag(container: object, index: Any) -> bool:
    """Whether an item of a list is the value of the option before it: `[--api-key, sk-…]`."""
    if not isinstance(container, list) or not isinstance(index, int) or index == 0:
        return False
    before, item = container[index - 1], container[index]
    if not isinstance(before, str) or isinstance(item, dict | list) or str(item).startswith("-"):
        return False
    return _FLAG.fullmatch(before) is not None and looks_like_secret_key(before)


def _hide_in_override(token: str) -> str:
    key, equals, _ = token.partition("=")
    name = key.lstrip("+~").rpartition(".")[2]
    if equals and looks_like_secret_key(name):
        return f"{key}={MASK}"
    return mask_userinfo(_PAIR.sub(_hide_in_pair, token) if "{" in token else token)


def _hide_in_pair(pair: re.Match[str]) -> str:
    return f"{pair['key']}{pair['colon']}{MASK}" if looks_like_secret_key(pair["key"]) else pair[0]


def _spellings(value: str) -> set[str]:
    return {value, quote(value, safe=""), json.dumps(value)[1:-1]}
