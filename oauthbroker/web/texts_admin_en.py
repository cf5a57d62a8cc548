"""The words that the operators' pages, `/admin`, have, and what they are in English."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdminTexts:
    """One language. `{names}` in braces are filled with escaped, direction-isolated words."""

    brand: str
    nav: str
    overview: str
    grants: str
    waiting: str
    queues: str
    circuits: str
    audit: str
    leave: str
    left_title: str
    left_lead: str
    login_title: str
    login_lead: str
    login_key: str
    login_hint: str
    login_button: str
    login_wrong: str
    login_role: str
    login_here_lead: str
    login_here: str
    apps_counted: str
    living_counted: str
    config_trouble: str
    col_app: str
    col_state: str
    col_alive: str
    col_again: str
    col_ended: str
    col_failure: str
    col_circuit: str
    light_good: str
    light_warn: str
    light_bad: str
    none: str
    not_configured: str
    circuit_open: str
    unlisted: str
    no_apps: str
    search: str
    search_hint: str
    filter_app: str
    filter_state: str
    filter_type: str
    filter_grant: str
    filter_grant_hint: str
    filter_since: str
    filter_until: str
    all: str
    apply: str
    count: str
    page_of: str
    newer: str
    older: str
    col_subject: str
    agent: str
    event_id: str
    col_agent: str
    col_changed: str
    col_since: str
    state_alive: str
    state_ending: str
    state_again: str
    state_ended: str
    no_grants: str
    grant_title: str
    label_id: str
    label_audit_name: str
    label_provider: str
    label_scopes: str
    label_authorized: str
    label_used: str
    label_until: str
    label_events: str
    label_told: str
    not_told: str
    told: str
    never: str
    revoke: str
    revoke_title: str
    revoke_lead: str
    revoke_button: str
    keep: str
    waiting_lead: str
    col_expires: str
    col_way: str
    way_open: str
    way_left: str
    cancel: str
    no_waiting: str
    queues_lead: str
    col_waiting: str
    col_leased: str
    col_dead: str
    col_oldest: str
    no_queues: str
    dead_heading: str
    dead_lead: str
    col_event: str
    col_address: str
    col_attempts: str
    unreadable: str
    retry: str
    drop: str
    drop_title: str
    drop_lead: str
    drop_button: str
    no_dead: str
    circuits_lead: str
    col_what: str
    what_renewals: str
    what_revocations: str
    what_devices: str
    col_why: str
    col_left: str
    col_workers: str
    all_grants: str
    one_grant: str
    seconds: str
    no_circuits: str
    audit_lead: str
    col_when: str
    col_type: str
    col_details: str
    forged: str
    no_audit: str
    actions: str
    done_revoked: str
    done_cancelled: str
    done_retried: str
    done_dropped: str
    done_nothing: str


EN = AdminTexts(
    brand="oauthbroker",
    nav="Operations",
    overview="Overview",
    grants="Grants",
    waiting="Waiting",
    queues="Queues",
    circuits="Circuits",
    audit="Audit",
    leave="Sign out",
    left_title="Signed out",
    left_lead="This browser can no longer open the operators' pages.",
    login_title="Operators' entrance",
    login_lead="Sign in with an API key that has the role operator.",
    login_key="API key",
    login_hint="The key is checked and forgotten: neither the cookie nor the store of this visit holds it.",
    login_button="Sign in",
    login_wrong="This is not a key that is valid now.",
    login_role="This key is valid, but not an operator's.",
    login_here_lead="You are on the broker's own machine, and the configuration lets you in without a key.",
    login_here="Come in without a key",
    apps_counted="{count} app|{count} apps",
    living_counted="{count} living grant|{count} living grants",
    config_trouble="The newest configuration was refused, an older one is in use.",
    col_app="App",
    col_state="State",
    col_alive="Alive",
    col_again="To agree again",
    col_ended="Ended",
    col_failure="Last failure",
    col_circuit="Circuit",
    light_good="All well",
    light_warn="Look at it",
    light_bad="Broken",
    none="none",
    not_configured="not configured any more",
    circuit_open="open, {code}",
    unlisted="The provider does not list {scopes}, consent after consent.",
    no_apps="No app is configured.",
    search="Search",
    search_hint="part of a subject, or a grant id",
    filter_app="App",
    filter_state="State",
    filter_type="Type",
    filter_grant="Grant",
    filter_grant_hint="grant id, or its name in the log",
    filter_since="From (UTC)",
    filter_until="To (UTC)",
    all="All",
    apply="Show",
    count="{count} found",
    page_of="Page {page} of {pages}",
    newer="Previous page",
    older="Next page",
    col_subject="Subject",
    agent="Agent",
    event_id="Event id",
    col_agent="Asked by",
    col_changed="Changed",
    col_since="Since",
    state_alive="alive",
    state_ending="ends soon",
    state_again="agree again",
    state_ended="ended",
    no_grants="No grant fits.",
    grant_title="Grant of {app}",
    label_id="Grant id",
    label_audit_name="In the audit log",
    label_provider="Provider",
    label_scopes="Scopes",
    label_authorized="Agreed by",
    label_used="Used last",
    label_until="Token ends",
    label_events="Events to send",
    label_told="Provider",
    not_told="still to be told of the end",
    told="has nothing to be told",
    never="not known",
    revoke="Revoke",
    revoke_title="Revoke this grant of {app}?",
    revoke_lead="Tools get no token of it from now on. The provider is told, and the agent that waits hears of it.",
    revoke_button="Revoke",
    keep="Keep it",
    waiting_lead="People who have been asked and have not agreed yet.",
    col_expires="Expires",
    col_way="Way",
    way_open="not opened",
    way_left="on the way",
    cancel="Cancel",
    no_waiting="Nobody is being waited for.",
    queues_lead="Events on their way to agents.",
    col_waiting="Waiting",
    col_leased="Leased",
    col_dead="Dead",
    col_oldest="Oldest",
    no_queues="All queues are empty.",
    dead_heading="Dead letters",
    dead_lead="Events that no consumer could settle. Trying again gives them all their attempts anew.",
    col_event="Event",
    col_address="Address",
    col_attempts="Attempts",
    unreadable="unreadable",
    retry="Try again",
    drop="Drop",
    drop_title="Drop this event for good?",
    drop_lead="Its agent will never hear of it. The grant itself is not touched.",
    drop_button="Drop it",
    no_dead="There are none.",
    circuits_lead="Providers that are not asked for a while, and why, in how many workers of this store.",
    col_what="For",
    what_renewals="renewals",
    what_revocations="revocations",
    what_devices="device codes",
    col_why="Why",
    col_left="Asked again in",
    col_workers="Workers",
    all_grants="all grants",
    one_grant="one grant",
    seconds="{count} s",
    no_circuits="No circuit is open: every provider is asked.",
    audit_lead="The newest entries, the newest first.",
    col_when="When",
    col_type="Type",
    col_details="Details",
    forged="does not follow the line before it",
    no_audit="No entry fits.",
    actions="Actions",
    done_revoked="The grant has ended.",
    done_cancelled="The request was withdrawn.",
    done_retried="The event will be tried again.",
    done_dropped="The event is gone.",
    done_nothing="There was nothing left to do.",
)
