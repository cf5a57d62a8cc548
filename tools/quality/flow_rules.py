"""The rules of the flow tools' specification, sentence by sentence, each with its assessment: documents 000 (schema, graph rules)
and 001 (what a tool is, risk levels), and the guide beside them (risk patterns, policies, expressions).

"As written" needs no further words. "Decided" says how an open place is filled, "stricter" where more is refused than the
sentence says.
"""

from __future__ import annotations

FLOW_RULES = {
    "000-schema": "the JSON Schema of a tool: as printed, every member of it; stricter: unknown members are refused, `$schema` is allowed, sizes are bounded",
    "000-top-name": "`name` is camelCase with dots: as printed; stricter: at most 128 characters",
    "000-top-version": "`version` is an integer from 1 and immutable: as written; a deployed version with other bytes is refused",
    "000-top-description": "`description` is a text: as written",
    "000-top-input": "`input` is a JSON Schema: as written; stricter: 2020-12, known formats, no other documents, linear regexes",
    "000-top-output": "`output` is a JSON Schema: as `input`",
    "000-top-policies": "`policies` are names of policies: as written; stricter: unknown names are refused",
    "000-top-risk": "`riskLevel` is assigned by the risk engine and not by the user: as written; a written one decides nothing, and a difference is told",
    "000-top-concurrency": "`concurrencyStrategy` is chosen from the flow: as written; decided: none without a change of existing rows, pessimistic "
    "if something outside is called too, else optimistic; a written one stays",
    "000-top-idempotency": "`idempotencyKey` is an expression of the input: as written, one key for all callers; looser: it may read `caller.id`; stricter: its value is a text, and a call without one is refused with its place",
    "000-trigger-1": "`trigger.type` is http, webhook, cron or queue: as printed",
    "000-trigger-2": "`method` is for http: as written; stricter: refused elsewhere",
    "000-trigger-3": "`path` is for http: as written; stricter: refused elsewhere, plain segments without . and ..; two tools with one method and path are refused by the check",
    "000-trigger-4": "`schedule` is required for cron: as written; stricter: refused elsewhere, five fields that fire some day",
    "000-trigger-5": "`webhookSecret` applies to webhook: stricter: required there, because an unsigned webhook is open to any caller, and refused elsewhere",
    "000-graph-1": "nodes are a map with unique keys, edges a list, `startNode` a key: as printed, and 001's array with ids; stricter: ids are names "
    "that expressions can use, `-` and `_` are one letter in them; at most 200 nodes",
    "000-node-1": "a node has one of 14 types, a config, a position: as printed; both spellings of types; decided: the members of each config, unknown ones are refused",
    "000-node-2": "positions have no effect: as written",
    "000-types-read": "read takes an entity or a composite: as written; decided: exactly one, `filter` and `limit` beside it; one row that is not found is null, a member of it is answered with `notFound`, and the check tells where that may be",
    "000-types-write": "write creates, updates, moves the status, deletes softly: as written; decided: `operation` or `action`, a transition has `to`",
    "000-types-retry": "retry tries the nodes below it again, with a number and a backoff: decided: the next external node, behind what certainly had no effect; "
    "the rest of a flow is tried again by the repeated call; the check tells of one that stands before no external node",
    "000-types-timeout": "timeout bounds the nodes below it: decided: the next external node; other nodes are bounded by rows and by the expressions' budget; the check tells of one that stands before no external node",
    "000-types-composite": "a read reads a composite: as written; decided: an entity declares it, its rows together with the row that a field names or the rows that name it; the row "
    "policy holds for each part, and at most 100 rows are read so",
    "000-types-rest": "the other 12 types: as printed; decided: their config members",
    "000-edge-1": "an edge has from, to, label, dataMapping: as printed; both ends are nodes",
    "000-edge-2": "labels are `true` and `false` for if, cases for switch: as written; decided: `default` for the rest; stricter: other nodes have no label "
    "and at most one edge, so that a path is a run",
    "000-edge-3": "`dataMapping` maps output fields to input fields: as printed; stricter: no two to one field",
    "000-auth-1": "`auth.required` is true by default: as written",
    "000-auth-2": "`allowedRoles` empty or absent is every authenticated role: as written, loaded as the empty list",
    "000-rules-0": "each graph is validated by these rules before a deployment: as written; decided: a deployed version is assessed again when it is used",
    "000-rules-1": "rule 1, no cycle, red: as written",
    "000-rules-2": "rule 2, one startNode that is a node: as written; decided: red",
    "000-rules-3": "rule 3, every path reaches a terminal node: as written; decided: red, and each outcome of a branch has an edge",
    "000-rules-4": "rule 4, writes inside a transaction, red: as written, on every path, in both forms; decided: a form without an end reaches to the end of the "
    "flow, transactions do not nest, a commit needs one that is open",
    "000-rules-5": "rule 5, external nodes have a retry node, yellow: as written; decided: directly before, on every path, a timeout may stand between",
    "000-rules-6": "rule 6, no orphans: as written; decided: red",
    "000-dsl-1": "expressions are a bounded value language: decided: CEL with checked types; all numbers are doubles",
    "000-dsl-2": "`diffDays(a, b)`: decided: a double, of ISO 8601 dates or times",
    "000-dsl-3": "`concat(...)`: decided: any number of texts and numbers; a whole number has no point",
    "000-dsl-4": "expressions are pure and bounded: as written; an iteration budget, no `map`, texts of at most 64 Ki characters, 32 levels; loops cost by the size of the values that they read, the same on every machine",
    "000-dsl-5": "the value of an expression: decided: JSON, checked before a deployment where its type is known, else when it is evaluated; no NaN, no infinity, no text with NUL",
    "000-example-1": "createReservation loads verbatim: as printed, green; it uses `vehicle`, which nothing reads, and is deployable with a read of it, and then answers by HTTP as printed",
    "001-fields": "the fields of a tool: as 000",
    "001-version": "a version is immutable: as 000-top-version",
    "001-trigger-1": "the four triggers: as 000",
    "001-policies": "policies govern a tool: as written, by name",
    "001-auth-1": "`required` may be false: as written",
    "001-idempotency": "`idempotencyKey` is an expression: as 000",
    "001-risk-1": "green has safe patterns only: as written, with the guide's list",
    "001-risk-2": "yellow has warning patterns and is deployable with acknowledgement: as written; the assessment is `acknowledge`",
    "001-risk-3": "red has unsafe patterns and is blocked: as written; the assessment is `no`",
    "001-risk-5": "a finding has a suggestion: as written, beside the path that leads to it",
    "001-risk-4": "a red tool cannot be deployed under any circumstances: as written; no option changes an assessment",
    "001-acknowledge": "an acknowledgement is logged: as written, who, when, which findings of which bytes; decided: in files that are only added beside the "
    "versions, each yellow finding has to be named; stricter: changed bytes ask again",
    "001-deploy": "a version is deployed: decided: its bytes are kept, several versions are live at once, one of them serves, forward and back; an older one is assessed "
    "again when it is used",
    "001-withdraw": "a version is immutable, and each execution takes the nine steps without exception: decided: a withdrawn version takes no new call and no trigger, for ever, on the "
    "record; runs that have begun go on to their end, because they were authorised and may have committed; the version that serves needs an explicit word",
    "001-dialect": "nodes as an array with ids, capital types, `action`, begin and commit: as printed, normalised to 000's form",
    "001-binding": "`reservation.status` after the read of Reservation: decided: a read binds its id and its entity's name with a small first letter",
    "001-example-1": "processPayment loads verbatim and is yellow: as printed; it answers by HTTP as printed",
    "001-example-2": "the write stands inside the transaction: as printed",
    "001-example-3": "the payment stands behind the commit: as written; inside the transaction it is red",
    "001-example-4": "`paymentRollback` makes the payment yellow and not red: decided: it counts as compensation",
    "001-rollback": "a charged payment cannot be undone automatically by a rollback: decided: with `paymentRollback`, the charges of a run that fails later are refunded, the last one "
    "first, each once; what cannot be refunded is told in the run's notes, and a person decides",
    "001-example-6": "the key prevents a second charge of one reservation and amount: as written, also after a failure, a refund or an erasure; decided: a charge that certainly did not "
    "happen gives the key free, so that another card can pay",
    "001-concurrency": "the strategy says how concurrent invocations are handled: decided: transactions are serializable in each of them, and one that lost a race starts again; "
    "pessimistic also locks the rows that are read, and before the transaction those whose ids the input names; one that loses each race for 30 s ends with `contention`",
    "001-example-5": "the key has reservation and amount: as printed",
    "policy-1": "a policy has name, version, description, type, condition, action, message, parameters: as written; decided: the facts that a condition reads",
    "policy-2": "`maxRowLimit`, `requireTransaction` and `paymentRollback` come with the product: as written",
    "000-contract-0": "each execution takes the nine steps in exactly this order, without exception: as written, for each trigger; decided: a repeated call is no execution, it takes "
    "steps 1 and 2 and gets the answer of the first one; a run that waits or is killed takes its further steps later, and each run comes to step 8, also one that fails or is cancelled",
    "000-contract-10": "no model takes part in a step, and all is deterministic: as written; rows, keys and ids follow from the call; the database gives the time and the run's id",
    "000-contract-1": "step 1, the input is validated by its schema: as written; a refusal has the JSON pointer and the keyword of each place, and no value; stricter: texts with NUL and numbers beyond a double are refused",
    "000-contract-2": "step 2, authorisation: as written for roles and rows; decided: the row policy of an entity names the field with its owner's id; the caller is "
    "authenticated before the call; a refusal says which roles the tool asks for, or which field names the owner",
    "000-contract-3": "step 3, every named policy is evaluated: as written; decided: again with the touched rows, before each commit and payment",
    "000-contract-4": "step 4, a transaction is begun: as written; decided: an external node ends it and runs behind the commit",
    "000-contract-5": "step 5, the graph is run node by node along the edges: as written",
    "000-contract-6": "step 6, the invariants of each changed entity hold: as written, at each commit",
    "000-contract-7": "step 7, commit, or roll back on failure: as written for each transaction; decided: the rows that were committed before an external node stay when a later step fails",
    "000-contract-8": "step 8, an entry of the audit log: as written, for each exception of a run, too; decided: in a table of the database, in the transaction that ends the run; a refused call has one, too, and a run that a person retries has one for each end",
    "000-contract-9": "step 9, the normalised output: as written; decided: the result of the last node that has one, with the members of the schema; stricter: an output "
    "that does not fit is refused before the last commit",
    "000-auth-roles": "a caller is authenticated and has an allowed role: as written",
    "001-auth-3": "an unauthorised request is rejected before any business logic runs: as written",
    "001-auth-2": "`allowedRoles` name the roles: as 000; stricter: a tool with roles needs a caller, also with `required: false`",
    "000-types-effects": "what each node does: as written for read, write, transform, if, switch, retry, timeout, transaction, policyCheck and assert; payment, email and "
    "sms are ports. Decided: a create without fields takes the input's members of the same names, a payment without fields the input",
    "000-types-http": "httpRequest calls an external API: as written; decided: it names an OAuthApp, whose hosts and methods it may call; the broker adds the token, which no flow "
    "gets. Stricter: a literal https URL whose values are whole segments; an error of the server behind an effect counts as a lost answer",
    "000-edge-data": "`dataMapping` moves data along an edge: as written; decided: into the fields of a write or payment, the body of a request and the filter of a read; a written "
    "field wins; stricter: a field that the node does not take is refused, such as the status of an entity",
    "policy-run": "a policy is evaluated at run time and by policyCheck nodes, and blocks, warns or escalates: as written; decided: an escalated run stops before its next commit",
    "001-deduplicate": "a repeated call gets the first answer: as written; decided: a failed run without a commit frees its key, and an event stays one run however it ends; stricter: another caller or input is refused",
    "run-kills": "a killed run is finished by the repeated call, nothing half and nothing twice: as the guide asks; an effect whose answer was lost is unknown and not repeated, "
    "unless the provider takes keys",
    "flow-run": "`oauthbroker flow run` and `flow runs`: as the issue asks; decided: a run that waits for a consent ends the command with status 75 and a link, and `--resume` goes on; "
    "lists have no inputs and results",
    "policy-approval": "a policy escalates to a person: as the guide names it; decided: the person approves or declines the run, once, on the record; stricter: its own caller cannot approve it; an approval lets this run pass this policy",
    "run-erasure": "step 8 writes an audit entry for each execution, without exception: as written, also of an erased caller; decided: erasing a user ends the runs that live, removes input, result, steps and subject, keeps the "
    "entry under a pseudonym and the idempotency key as a keyed hash; ended runs lose input, result and steps after `retentionDays`",
    "run-backup": "the database of flows is backed up beside the store: as the issue asks; `oauthbroker flow backup` and `restore` for SQLite, pg_dump is named for PostgreSQL; after a restore runs go on and nothing is charged twice at a provider that takes keys",
    "flow-new": "an example that runs as printed: as the issue asks; `oauthbroker flow new` writes it, examples/flowtools is the same folder",
    "flow-plan": "changes of the schema are planned, shown, and refused where data would be lost: as the user asked; `oauthbroker flow plan` shows them, `flow run --apply` makes them",
    "000-types-providers": "payment and sms call a provider, such as Stripe or Toss: as written; decided: adapters are entry points of packages, with a contract to test them; a "
    "sandbox plays a provider where the configuration says so",
    "000-deploy-ready": "a version is refused at deploy time whose entities or adapters are not configured: as the issue asks; `flow deploy` takes them by options or by the FlowService",
    "hostile": "a hostile specification is refused with a reason, in bounded time: as the issue asks",
    "000-types-mail": "email sends an email: as written, by SMTP; decided: TLS outside of loopback, all recipients or none, a message whose answer was lost is never sent again",
    "flow-tools": "a deployed flow is a tool of an agent with its input schema and its risk: as the user asked; decided: `flow__` and the name in small letters; "
    "the runtime says who calls; a consent resumes the agent's own turn, and the repeated call goes on with the waiting run of the same caller and input",
    "flow-pages": "operators see versions, risk, runs and their steps, and why one failed: as the issue asks; decided: pages of `/admin` that only read, and show no value of a call",
    "000-trigger-http": "an http tool is called with `tool.call(name, payload)` and by its own method and path: as written; decided: `POST /v1/flowtools/tools/NAME`, and "
    "the path below one prefix; the query of a GET or DELETE is the input; a run that is not over is answered with 202; two serving tools with one method and path are refused",
    "000-trigger-jwt": "step 2 verifies a JWT: as written; decided: of configured issuers, algorithms with pairs of keys only, `typ`, `iss`, `aud`, `exp` and `nbf`; API keys of the broker "
    "beside it, with roles of the configuration; a stranger may call public tools",
    "000-trigger-webhook": "an external service calls back, signed with a secret by name: as written; decided: Standard Webhooks, and the forms of GitHub and Stripe; the secret is in "
    "the broker's sealed store, two of them hold during a change; 202 after the run is stored; an event is one run, by its id or the hash of its body; stricter: two "
    "webhooks of one secret are refused unless both declare it, because no form signs the receiver",
    "000-trigger-cron": "a run on a schedule: as written; decided: UTC or a declared time zone, by the database's clock, one run in the cluster for each firing; of firings that no process "
    "saw, `once` makes one run and `skip` none; the input is empty, or has `scheduledAt`",
    "000-trigger-queue": "a run by an event of a message queue: as written; decided: the broker's queue of the agent that the trigger names; the payload is the input; settled when the run "
    "is stored, a dead letter when no run takes it",
    "000-trigger-as": "webhook, cron and queue runs act as a service identity: as the issue asks; decided: `auth.runAs` names one of the configuration, with its roles; an unknown one is a finding, and one beside an http trigger, which runs as its caller, is refused",
    "run-serves": "a running broker serves the deployed versions and goes on with runs by itself: as the issue asks; decided: a version that cannot run, and a database that is away, "
    "are findings, and the broker serves",
    "run-waits": "a run whose user has to consent waits durably and goes on after `auth.granted`: as the user asked; decided: nothing was sent before, the link is not stored, "
    "a declined or expired consent ends the run",
}
