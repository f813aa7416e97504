"""How long things may take: every time limit that settings fill or tests replace, in seconds, on one page.

Limits that nobody changes stay where they are used; what a program may use is `RunLimits`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds. Settings fill `connect` and `call`, which the gateway passes on; for the rest see `current_limits`."""

    # Servers of the gateway.
    connect: float = 30.0
    call: float = 60.0
    reconnect: float = 10.0
    """How long a call waits for a server that has to be connected again."""
    heartbeat: float = 30.0
    first_pause: float = 1.0
    """The pause after the first failed attempt to connect; it doubles up to `max_pause`."""
    max_pause: float = 60.0
    debounce: float = 0.2
    """How long after a server's notice of changes it is listed: notices come in groups."""
    poll: float = 1.0
    """How often the configuration is looked at."""
    ping: float = 10.0
    notification: float = 10.0
    """For the answer to a notification or to an answer of ours, which is empty."""
    oauth_request: float = 15.0
    """For the whole of a request, also if the answer comes byte by byte."""
    first_listing: float = 4.0
    """How long lists, and searches in an empty catalogue, wait for servers that nothing is known of. A server of one
    package is listed after 1.2 s, after three times as long beside others. HTTP clients often give up after 5 s."""
    tool_list: float = 2.0
    """How long the list of tools waits for the gateway to start: clients wait for the list before their user can do
    anything."""

    # Searches. A part that takes longer is left out, or the search fails and names it.
    tool_embedding: float = 10.0
    skills_stage: float = 2.0
    tools_stage: float = 5.0
    schemas_stage: float = 2.0
    document_search: float = 10.0
    document_embedding: float = 5.0
    document_rerank: float = 5.0
    result_embedding: float = 1.5
    knowledge_embedding: float = 1.2
    """From the start of a search, like the next two, so that a part that hangs leaves the others time."""
    knowledge_ranking: float = 1.6
    knowledge_reading: float = 2.0
    knowledge_selecting: float = 2.0
    """Before that, to compare all sources with a filter, for searches that have one."""
    knowledge_widening: float = 2.0
    """To read the sections of the hits, for searches that ask for sections."""
    knowledge_store: float = 1.5
    """A search waits 2 seconds for a store: a shorter timeout leaves time to report the reason."""

    # Calls.
    argument_check: float = 5.0
    argument_check_turn: float = 30.0
    argument_check_start: float = 30.0
    """How long the worker that checks arguments may take to start."""
    type_check_turn: float = 30.0
    """Two checks of a program's types that take as long as they may."""
    answer: float = 600.0
    """For a person, who may have to fill in a form."""
    approval: float = 600.0
    """How long a question can be answered, and an approval be used."""
    approval_store: float = 5.0
    save_result: float = 5.0
    """A call does not wait longer for the store: its answer is cut all the same."""

    # Keys and logins.
    keys_max_age: float = 1.0
    keys_read: float = 0.5
    """How long requests wait for one reading of the keys before they use the previous ones."""
    key_set: float = 5.0
    """For reading the key set of an issuer of tokens."""
    rate_bucket: float = 0.5
    """How long a request waits for the database. It usually answers within 5 ms; one that is frozen holds the thread
    of a call for longer than that, so calls are rare until it answers again."""
    login: float = 600.0
    """How long a person may take to log in."""
    login_poll: float = 1.0
    login_read: float = 2.0
    """How long a request waits to learn whether there is a login: most servers need none."""
    login_close: float = 3.0
    """How long the end of the gateway waits for renewals."""

    # Stores, indexes and models.
    probe: float = 4.0
    """Of the store and the index. Shorter than the timeouts of probes, which would otherwise report nothing."""
    free_thread: float = 10.0
    """How long a call may wait until a thread is free. When the server does not answer, all threads wait for it."""
    statement: float = 30
    """The longest statement of PostgreSQL. One that writes may wait for other writers."""
    text_contents: float = 1.0
    """Lists wait no longer for a store."""
    count_points: float = 4.0
    """Those who read metrics give up after 10 s."""
    call_log_page: float = 0.05
    """A page with few matches is followed by the next, as long as this lasts."""
    audit_check: float = 1.0
    audit_interval: float = 0.2
    catalogue_poll: float = 1.0
    """How often the version in the store is read; a notification of a change comes earlier, where there are some."""
    catalogue_pause: float = 0.3
    """Changes come in groups; between two of them the catalogue is not read."""
    optimise_after: float = 5.0
    """Once nothing was written for a while, the graph of the index waits no longer."""
    map_after: float = 5.0
    """Changes come in groups, and servers that start have precedence."""
    map_interval: float = 30.0
    """Drawing 10 000 tools takes 3 s of one core: a catalogue that keeps changing costs a tenth of it."""
    model_hub: float = 2.5
    chat_first_wait: float = 0.5
    registry_page: float = 30.0
    registry_sync: float = 600.0
    """For all pages of a registry of servers."""

    # Ingestion.
    job_lease: float = 30.0
    job_renewal: float = 2.0
    job_poll: float = 5.0
    """How often work of other gateways is looked for; a job of this one starts at once."""
    repair_first_pause: float = 5.0
    """The pause before documents that could not be indexed are tried again; it doubles each time."""
    repair_max_pause: float = 60.0

    # HTTP and commands.
    request_head: float = 10.0
    request_body: float = 20.0
    """Between two pieces of a body, or of a response: a large one over a slow line may take longer in all."""
    open_app: float = 30.0
    shutdown: float = 9.0
    """Requests have four seconds to end, servers another three. Docker, for instance, kills after ten."""
    shutdown_requests: int = 4
    shutdown_events: float = 2.0
    trace_export: float = 2.0
    command_connect: float = 20.0
    index_folder: float = 10.0
    """How long to wait for another process that has opened the index folder: most commands end within a second."""
    completion: float = 1.0
    port_owner: float = 2.0
    upload_poll: float = 0.25


_limits = Limits()


def current_limits() -> Limits:
    """The limits of this process. Tests replace them as a whole."""
    return _limits
