"""Korean particles fit the name before them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.web.html.korean_particles import particle
from oauthbroker.web.html.shown_names import isolated, phrase, plain_phrase
from oauthbroker.web.words import SECTIONS

PAIRS = ("은/는", "이/가", "을/를", "으로/로")


@pytest.mark.parametrize(
    "name, said",
    [
        ("슬랙", "은 이 을 으로"),
        ("메모", "는 가 를 로"),
        ("구글", "은 이 을 로"),
        ("팀 게시판", "은 이 을 으로"),
        ("메모 (서울)", "은 이 을 로"),
        ("Slack", "은 이 을 으로"),
        ("Notion", "은 이 을 으로"),
        ("Zoom", "은 이 을 으로"),
        ("HubSpot", "은 이 을 으로"),
        ("WhatsApp", "은 이 을 으로"),
        ("LinkedIn", "은 이 을 으로"),
        ("Google", "은 이 을 로"),
        ("Gmail", "은 이 을 로"),
        ("Airtable", "은 이 을 로"),
        ("PayPal", "은 이 을 로"),
        ("GitHub", "는 가 를 로"),
        ("Microsoft", "는 가 를 로"),
        ("Dropbox", "는 가 를 로"),
        ("Jira", "는 가 를 로"),
        ("Trello", "는 가 를 로"),
        ("Salesforce", "는 가 를 로"),
        ("API", "는 가 를 로"),
        ("CRM", "은 이 을 으로"),
        ("SQL", "은 이 을 로"),
        ("slack.com", "은 이 을 으로"),
        ("Team 1", "은 이 을 로"),
        ("Team 2", "는 가 를 로"),
        ("Team 3", "은 이 을 으로"),
        ("Team 10", "은 이 을 으로"),
        ("127.0.0.1:8420", "은 이 을 으로"),
        ("チーム", "은(는) 이(가) 을(를) (으)로"),
        ("🚀", "은(는) 이(가) 을(를) (으)로"),
        ("", "은(는) 이(가) 을(를) (으)로"),
    ],
)
def test_a_particle_fits_the_end_of_the_name(name, said):
    assert said.split() == [particle(name, pair) for pair in PAIRS]


@given(st.integers(0xAC00, 0xD7A3).map(chr), st.text(max_size=5), st.sampled_from(PAIRS))
def test_after_hangul_the_final_consonant_alone_decides(syllable, before, pair):
    chosen = particle(before + syllable, pair)
    closed, opened = pair.split("/")
    final = (ord(syllable) - 0xAC00) % 28
    assert chosen == (opened if final == 0 or (final == 8 and opened == "로") else closed)


@given(st.text(), st.sampled_from(PAIRS))
def test_any_name_gets_one_of_the_pair_or_both(name, pair):
    closed, opened = pair.split("/")
    assert particle(name, pair) in {closed, opened, f"{closed}({opened})", "(으)로"}


def test_a_sentence_says_the_name_and_its_particle_and_nothing_of_how_it_was_chosen():
    assert "<bdi>Slack</bdi>으로 계속" == str(phrase("{provider:으로/로} 계속", provider="Slack"))
    assert "<bdi>a&amp;l</bdi>로" == str(phrase("{host:으로/로}", host=isolated("a&l")))
    assert "\u2068노트\u2069를" == plain_phrase("{app:을/를}", app="노트")


@pytest.mark.parametrize("section", SECTIONS["ko"])
def test_no_sentence_leaves_the_choice_of_a_particle_to_its_reader(section):
    said = SECTIONS["ko"][section].values()
    assert [] == [line for line in said if any(both in line for both in ("(으)로", "을(를)", "은(는)", "이(가)"))]
