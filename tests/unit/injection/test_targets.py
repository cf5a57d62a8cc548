"""Where a request that carries a token may go."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.targets import Target, target_at, target_of
from oauthbroker.model.apps import App
from oauthbroker.model.provider_api import AccountHost, ApiAccess, ApiHost, written_host
from tests.kit.forms import examples
from tests.kit.samples import app_with

ALLOWED = ("api.example.com", "xn--bcher-kva.example", "api.example.com:8443", "http://127.0.0.1:8000")
HOSTS = tuple(host for host in map(written_host, ALLOWED) if host is not None)
APP = app_with(api=ApiAccess((*HOSTS, AccountHost("instance_url", ".my.example.org")), ("GET", "POST")))


def code_of(url: str, method: str = "GET", app: App = APP) -> Code | None:
    try:
        target_of(app, method, url)
    except BrokerError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("method", "url", "said"),
    [
        ("GET", "https://evil.example/secret?token=t", "is not sent to evil.example. Its spec.api.hosts are: "),
        ("GET", "https://api.example.com:81/secret", "is not sent to api.example.com:81. Its"),
        ("GET", "http://api.example.com/secret", "is not sent to http://api.example.com. Its"),
        ("GET", "https://u:secret@api.example.com/", "is not sent to that address. Use a plain URL"),
        ("GET", "https://evil.example/", f"are: {', '.join(ALLOWED)}, {{instance_url}}.my.example.org. Use one"),
        ("DELETE", "https://api.example.com/secret", "Its spec.api.methods are: GET, POST. Use"),
    ],
)
def test_a_refusal_names_the_host_and_those_of_the_app_and_never_the_rest(method: str, url: str, said: str) -> None:
    with pytest.raises(BrokerError) as refused:
        target_of(APP, method, url)
    assert said in refused.value.message()
    assert "secret" not in refused.value.message()


def test_a_refused_path_is_not_repeated_and_those_of_the_app_are() -> None:
    with pytest.raises(BrokerError) as refused:
        target_of(app_with(api=ApiAccess(HOSTS, paths=("/v1", "/v2"))), "GET", "https://api.example.com/secret")
    assert refused.value.message().endswith("Use one at or below its spec.api.paths: /v1, /v2.")


def test_the_host_of_another_account_is_named() -> None:
    target = target_of(APP, "GET", "https://two.my.example.org/")
    with pytest.raises(BrokerError, match=r"host two\.my\.example\.org is of another account") as refused:
        target.check_account({"instance_url": "https://one.my.example.org"})
    assert "one.my" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("https://api.example.com", "https://api.example.com/"),
        ("https://api.example.com:443/v1?a=b", "https://api.example.com/v1?a=b"),
        ("https://api.example.com?a=b", "https://api.example.com/?a=b"),
        ("https://api.example.com:8443/a%2Fb//c.d/..e//", "https://api.example.com:8443/a%2Fb//c.d/..e//"),
        ("https://api.example.com/a#fragment", "https://api.example.com/a"),
        ("https://api.example.com/@evil.example/", "https://api.example.com/@evil.example/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("http://127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
        ("https://one.my.example.org/", "https://one.my.example.org/"),
    ],
)
def test_a_listed_host_is_reached_with_the_path_as_it_came(url: str, reached: str) -> None:
    target = target_of(APP, "GET", url)
    assert reached == f"{target.host.scheme}://{target.host.authority}{target.path}"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/",
        "https://example.com/",
        "https://api.example.com.evil.example/",
        "https://evil-api.example.com/",
        "https://sub.api.example.com/",
        "https://api.example.com./",
        "https://api.example.com..:443/",
        "https://API.example.com/",
        "https://api.example.com@evil.example/",
        "https://user:pass@api.example.com/",
        "https://@api.example.com/",
        "https://evil.example\\@api.example.com/",
        "https://api.example.com\\.evil.example/",
        "https://api.example.com:/",
        "https://api.example.com:0443/",
        "https://api.example.com:444/",
        "https://api.example.com:443:443/",
        "https://api.example.com:8443@evil.example/",
        "https://api.example.com%2eevil.example/",
        "https://api%2eexample.com/",
        "https://api\u3002example.com/",
        "https://\u0430pi.example.com/",
        "https://b\u00fccher.example/",
        "https://api.example.com\t/",
        "https://api.example.com\r\nHost: evil.example/",
        " https://api.example.com/",
        "HTTPS://api.example.com/",
        "https:/api.example.com/",
        "https:api.example.com/",
        "//api.example.com/",
        "/v1",
        "",
        "http://api.example.com/",
        "http://api.example.com:443/",
        "https://127.0.0.1:8000/",
        "http://127.0.0.1/",
        "http://127.1:8000/",
        "http://0x7f000001:8000/",
        "http://2130706433:8000/",
        "http://[::1]:8000/",
        "https://[::ffff:127.0.0.1]:8000/",
        "ftp://api.example.com/",
        "wss://api.example.com/",
        "https://my.example.org/",
        "https://.my.example.org/",
        "https://evilmy.example.org/",
        "https://one.my.example.org:444/",
        "http://one.my.example.org/",
        "https://one..my.example.org/",
        "https://my.example.org.evil.example/",
    ],
)
def test_no_other_host_is_reached(url: str) -> None:
    assert code_of(url) is Code.API_HOST_FORBIDDEN


@pytest.mark.parametrize(
    "path",
    [
        *("/..", "/%2e%2e/x", "/a/%252E./b", "/a/..;v=1/b", "/a/./b?c", "/a%2f..%2fb", f"/%{'25' * 2700}"),
        *(
            "/a/..%20/b",
            "/a/%20../b",
            "/a/..%09",
            "/a/.%00./b",
            "/a/..%20./b",
            "/a/..%3fx",
            "/a/..%23x",
            "/a/.%c2%a0/b",
        ),
        *("/%c0%ae%c0%ae/x", "/%25c0%25ae./x", "/%e0%80%ae./x", "/%f0%80%80%ae./x", "/a/..%c0%afx"),
        *("/%ef%bc%8e%ef%bc%8e/x", "/%e2%80%a5/x", "/a%ef%bc%8f..%ef%bc%8fb", "/%ef%bc%852e./x"),
    ],
)
def test_a_path_has_no_step_that_leads_out_of_it_in_any_spelling_as_over_http(path: str) -> None:
    assert code_of(f"https://api.example.com{path}") is Code.REQUEST_INVALID


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/a\\b", "/\u00e9", "/\x7f", "/" + "a" * 9000, "/a\0"])
def test_a_path_is_visible_ascii_of_bounded_length(path: str) -> None:
    assert code_of(f"https://api.example.com{path}") is Code.REQUEST_INVALID
    with pytest.raises(BrokerError):
        target_at(APP, "GET", "api.example.com", path)


@pytest.mark.parametrize("path", ["/%ZZ", "/%", "/a%2", "/%2g", "/%%20", "/%u0041?x=1"])
def test_a_percent_sign_of_a_path_without_its_two_digits_is_refused_by_name(path: str) -> None:
    with pytest.raises(BrokerError, match="A percent sign in the path") as caught:
        target_of(APP, "GET", f"https://api.example.com{path}")
    assert Code.REQUEST_INVALID is caught.value.code


@pytest.mark.parametrize("path", ["/a/../b", "/a/%2e%2e/b", "/\u00e9"])
def test_a_refusal_of_a_path_says_how_a_path_is_written(path: str) -> None:
    with pytest.raises(BrokerError, match=r"in ASCII, without a user and without steps such as /\.\./"):
        target_at(APP, "GET", "api.example.com", path)


@pytest.mark.parametrize("path", ["/v1/%c4%d6", "/v1/a%aa", "/v1/%ed%a0%80"])
def test_bytes_that_are_no_text_are_refused_where_paths_are_listed(path: str) -> None:
    url = f"https://api.example.com{path}"
    assert Code.API_PATH_FORBIDDEN is code_of(url, app=app_with(api=ApiAccess(HOSTS, paths=("/v1",))))
    assert code_of("https://api.example.com/v1/%C3%bc", app=app_with(api=ApiAccess(HOSTS, paths=("/v1",)))) is None


@pytest.mark.parametrize(
    "path",
    ["/%C3%bc", "/a%25ZZ", "/a?q=100%", "/a?%zz", "/a?/..%20", "/.well-known/x", "/.../a...b/%20/a.%20b", "/%d6"],
)
def test_a_path_with_whole_percent_signs_and_any_query_goes_on(path: str) -> None:
    assert path == target_of(APP, "GET", f"https://api.example.com{path}").path


@pytest.mark.parametrize("method", ["PUT", "get", "CONNECT", "TRACE", "GET\r\nX: y", "", "G\u0415T"])
def test_only_listed_methods_are_allowed(method: str) -> None:
    assert code_of("https://api.example.com/", method) is Code.API_METHOD_FORBIDDEN


def test_an_app_without_hosts_says_so_first() -> None:
    assert code_of("https://evil.example/", "TRACE", app_with()) is Code.API_NOT_DECLARED


@pytest.mark.parametrize(
    ("authority", "scheme"),
    [("api.example.com", "https"), ("api.example.com:443", "https"), ("127.0.0.1:8000", "http")],
)
def test_a_host_alone_gets_the_scheme_of_the_configuration(authority: str, scheme: str) -> None:
    assert scheme == target_at(APP, "GET", authority, "/").host.scheme


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        ("https://one.my.example.org", True),
        ("https://One.my.example.org/", True),
        ("one.my.example.org", True),
        ("https://two.my.example.org", False),
        ("https://one.my.example.org.evil.example", False),
        ("https://evil.example/one.my.example.org", False),
        ("https://one.my.example.org:444", False),
        ("http://one.my.example.org", False),
        (None, False),
        (12, False),
    ],
)
def test_a_host_of_an_account_is_the_one_that_the_provider_named(data: Any, fits: bool) -> None:
    target = target_of(APP, "GET", "https://one.my.example.org/")
    provider_data = {"instance_url": data}
    if fits:
        target.check_account(provider_data)
    else:
        with pytest.raises(BrokerError) as error:
            target.check_account(provider_data)
        assert error.value.code is Code.API_HOST_FORBIDDEN
    with pytest.raises(BrokerError):
        target.check_account({})


def test_a_host_of_the_configuration_needs_no_data() -> None:
    target_of(APP, "GET", "https://api.example.com/").check_account({})


PIECES = st.sampled_from(
    ["https://", "http://", "api", "example", "com", ".", "..", ":", "443", "8443", "@", "\\", "/", "//", "?", "#",
     "%2e", "%00", "\u3002", "\uff0e", "evil", "my.example.org", "127.0.0.1", "[", "]", "::1", " ", "\t", "\n", "\0", "-", "A"]
)  # fmt: skip


def of_url(app: App, text: str) -> Target | None:
    with suppress(BrokerError):
        return target_of(app, "GET", text)
    return None


def of_authority(app: App, text: str) -> Target | None:
    with suppress(BrokerError):
        return target_at(app, "GET", text, "/")
    return None


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40))
def test_for_any_input_the_target_is_a_listed_host_and_one_line(text: str) -> None:
    found = [validated(APP, text) for validated in (of_url, of_authority)]
    for target in (each for each in found if each is not None):
        assert target.host in HOSTS or re.fullmatch(r"([a-z0-9-]+\.)+my\.example\.org", target.host.name)
        assert target.host in HOSTS or target.host == ApiHost(target.host.name)
        assert re.fullmatch(r"/[!-~]*", target.path)
