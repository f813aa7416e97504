"""`toolscript mcp`: carries MCP messages between a client and the gateway of a data folder.

Clients start it and expect an answer within a quarter of a second; a gateway takes seconds. So the gateway is a process
of its own, started by the first pipe and shared by all. Until it serves, the pipe answers what it can from the answers
that the last gateway has left in the data folder (`surfaces/mcp/early_answers.py` writes them). The gateway gets these
requests too, when it serves: its second answers are dropped, and a list that differs is announced.

    STARTING ◄──── no gateway serves: one is being started, by this pipe or by another
     │  │  ▲
     │  │  └── the client sends a request that only a gateway can answer ──────────────┐
     │  └── the gateway cannot start: requests are answered with the reason ──► FAILED ┤
     │                                                                                 │
     └── the gateway greets ──► CONNECTED ── the gateway has ended ──► ENDED ──────────┘
                                    ▲                                    │
                                    └────── another gateway greets ──────┘

The package imports the standard library alone, and little of it: a pipe takes 13 MB and starts in 60 ms.
"""
