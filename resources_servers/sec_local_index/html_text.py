"""The text of an HTML page."""

from __future__ import annotations

import html
import re

_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
_REST_OF_TAG = re.compile(r"""[^>"']*+(?:"[^"]*"[^>"']*+|'[^']*'[^>"']*+)*+>""")
_HIDDEN_ENDS = {name: re.compile(rf"</{name}(?![A-Za-z0-9])", re.IGNORECASE) for name in ("script", "style")}
# fmt: off
_LINES = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "div", "dl", "dt",
    "fieldset", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html",
    "li", "main", "nav", "ol", "option", "p", "pre", "section", "table", "tbody", "tfoot", "thead", "title",
    "tr", "ul",
})
# fmt: on
_CELLS = frozenset({"td", "th"})


def html_to_text(page: str) -> str:
    """What a page says, without its tags, scripts, styles and comments; text that is no HTML stays as it is.

    Blocks and table rows begin lines, cells of a row are a space apart. Lines are trimmed, parted where two spaces are,
    and dropped where they are blank. Takes time linear in the page's length, whatever is in it.
    """
    text = html.unescape("".join(_pieces(page)))
    phrases = (phrase.strip() for line in text.splitlines() for phrase in line.split("  "))
    return "\n".join(phrase for phrase in phrases if phrase)


def _pieces(page: str) -> list[str]:
    pieces: list[str] = []
    position = 0
    while (start := page.find("<", position)) >= 0:
        pieces.append(page[position:start])
        tag = _TAG.match(page, start)
        if tag is not None:
            name = tag[1].lower()
            pieces.append(_gap(name, is_closing=page[start + 1] == "/"))
            end = _end_of_tag(page, tag.end())
            if end is not None and name in _HIDDEN_ENDS and page[start + 1] != "/" and page[end - 2] != "/":
                closing = _HIDDEN_ENDS[name].search(page, end)
                end = None if closing is None else closing.start()
        elif page.startswith("<!--", start):
            end = _after(page, "-->", start + 2)
        elif page.startswith(("<!", "<?"), start):
            end = _after(page, ">", start)
        else:
            pieces.append("<")
            end = start + 1
        if end is None:  # what is never closed swallows the rest
            return pieces
        position = end
    pieces.append(page[position:])
    return pieces


def _gap(name: str, *, is_closing: bool) -> str:
    if name in _LINES:
        return "\n"
    return " " if name in _CELLS and not is_closing else ""


def _end_of_tag(page: str, position: int) -> int | None:
    """Where a tag ends: a `>` in quotes doesn't end it, unless the quotes are never closed."""
    whole = _REST_OF_TAG.match(page, position)
    return whole.end() if whole is not None else _after(page, ">", position)


def _after(page: str, mark: str, position: int) -> int | None:
    found = page.find(mark, position)
    return None if found < 0 else found + len(mark)
