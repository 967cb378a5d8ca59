"""Check of HTML pages with the parser of the standard library."""

from html.parser import HTMLParser

# Tags without an end tag.
VOID = ("meta", "img", "br", "tr", "th", "td", "li")


class _Nesting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open_tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag


def assert_well_nested(html: str) -> None:
    """Assert that every tag that needs an end tag has one, correctly nested."""
    parser = _Nesting()
    parser.feed(html)
    parser.close()
    assert parser.open_tags == []
