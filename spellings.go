package drover

import (
	"fmt"
	"slices"
	"strings"
)

// spelling is what other systems call a key of ours.
type spelling struct {
	form  string // the name of the form
	key   string // "": there is no such key
	write string // an example of the key; without a key all of the fix
	words string // the spellings, as snake gives them
}

// spellings are those that people bring along. They are told, and never taken:
// a definition has one spelling.
var spellings = []spelling{
	{definitionName, "nodes", "nodes: {<id>: {call: <function>}}", "steps tasks jobs stages states activities workflow"},
	{definitionName, "output", "output: {from: node:<id>}", "outputs result results return returns"},
	{definitionName, "input_schema", "input_schema: {type: object, properties: {...}}", "inputs parameters params arguments args schema input_type"},
	{definitionName, "max_parallel", "max_parallel: 100", "concurrency parallelism parallel max_concurrency max_workers"},
	{definitionName, "timeout", "timeout: 1h", "timeout_seconds timeout_s timeout_minutes timeout_ms deadline run_timeout"},
	{definitionName, "notify", "notify: {subject: <subject>}", "notifications notification subscribers subscriber callback callbacks notify_url on_complete on_completion on_success"},
	{definitionName, "", "leave it out: the session that gets a reply comes with the start of a run", "reply_to"},
	{definitionName, "name", "name: <workflow>", "id workflow_id"},
	{definitionName, "", "leave it out: the input comes with the start, and input_schema says what it must be", "input env vars variables"},
	{definitionName, "", "leave it out: whoever wants a run starts one", "on trigger triggers schedule cron"},
	{definitionName, "", "leave it out: tags come with the start of a run", "tags labels metadata"},
	{definitionName, "", "write a node with wait: {name: <name>} or wait: {hook: <token>} for each", "hooks hook signals webhooks webhook queries"},
	{definitionName, "", "leave it out, or make it a comment: in YAML # begins one", "description title comment comments doc"},
	{definitionName, "", "give every node that has something to undo a compensate: {call: <function>}", "on_failure on_error finally rollback catch"},
	{definitionName, "", "leave it out: what a node reads, it depends on; depends_on orders the others", "edges dependencies transitions start_at"},

	{nodeName, "call", "call: <function>", "function func fn task action activity uses handler job command cmd script step operation"},
	{nodeName, "sleep", "sleep: 5m", "delay pause wait_seconds timer"},
	{nodeName, "wait", "wait: {name: <name of the delivery>}", "signal event wait_for receive message"},
	{nodeName, "wait", "wait: {hook: true, public: true}", "webhook callback http_trigger"},
	{nodeName, "wait", "wait: {hook: <token>}", "claim lock mutex inbox mailbox correlation"},
	{nodeName, "wait", "wait: {approve: <what is asked>}", "approval human human_task user_task manual confirm review"},
	{nodeName, "release", "release: {hook: <node>}", "unlock free unhook close_hook end_hook"},
	{nodeName, "respond", "respond: {to: <wait>, with: ...}", "reply answer http_response webhook_response"},
	{nodeName, "run", "run: {workflow: <name>}", "subworkflow sub_workflow child_workflow child subflow"},
	{nodeName, "set", "set: {with: ...}", "value expr expression transform assign let compute const"},
	{nodeName, "request", "request: <subject>", "nats req service"},
	{nodeName, "fanout", "fanout: {over: node:<id>.<path>}", "foreach for_each for with_items loop each map matrix iterate items fan_out"},
	{nodeName, "when", "when: <expression>", "if condition cond only_if unless skip_if run_if"},
	{nodeName, "depends_on", "depends_on: [<node>, <node>]", "needs dependencies depends deps after run_after upstream requires"},
	{nodeName, "input", "input: {with: {...}}", "args arguments arg params parameters inputs data payload env environment vars variables kwargs input_data"},
	{nodeName, "retry", "retry: {max_attempts: 3}", "retries retry_policy retry_count max_retries max_retry attempts backoff retry_delay retry_strategy"},
	{nodeName, "timeout", "timeout: 30s", "timeout_seconds timeout_s timeout_sec timeout_minutes timeout_ms deadline time_limit start_to_close_timeout"},
	{nodeName, "heartbeat", "heartbeat: 10s", "heartbeat_timeout heartbeat_seconds heartbeat_interval keepalive"},
	{nodeName, "on_error", "on_error: continue", "on_failure on_fail continue_on_error continue_on_failure continue_on_fail ignore_error ignore_errors ignore_failure allow_failure catch fallback"},
	{nodeName, "output", "output: {type: json, schema: {...}}", "schema outputs output_schema result results returns response"},
	{nodeName, "compensate", "compensate: {call: <function>}", "compensation rollback undo revert on_rollback"},
	{nodeName, "", "leave it out: the node has its name from its key in nodes", "name id key label"},
	{nodeName, "", "leave it out, or make it a comment: in YAML # begins one", "description title comment doc"},
	{nodeName, "", "leave it out: who needs the node says so, by reading it or by depends_on", "next then goto on_success followed_by"},
	{nodeName, "", "leave it out: the key that says the kind holds the rest, as in call: <function>", "type kind"},

	{"agent", "system_prompt", "system_prompt: <text>", "prompt instructions system instruction role"},
	{"agent", "functions", "functions: [<pattern>]", "tools allowed_tools tool"},
	{"http", "url", "url: https://...", "uri href endpoint address host path"},
	{"http", "method", "method: POST", "verb type action"},
	{"http", "body", "body: {...}", "data json payload content form"},
	{"http", "", "write it into url: https://...?key=${{ expression }}", "params query query_params search"},
	{"retry", "max_attempts", "max_attempts: 3", "attempts max_retries retries count times limit maximum_attempts"},
	{"retry", "initial", "initial: 1s", "delay interval backoff wait min initial_delay initial_interval initial_backoff"},
	{"retry", "max", "max: 1m", "max_delay max_interval max_backoff maximum_interval cap"},
	{"retry", "factor", "factor: 2", "multiplier backoff_rate rate exponent coefficient backoff_coefficient base"},
	{"fanout", "over", "over: node:<id>.<path>", "items in list from each array foreach for_each of"},
	{"fanout", "max_parallel", "max_parallel: 8", "concurrency limit parallel parallelism max_concurrency"},
	{"wait", "name", "name: <name of the delivery>", "event signal topic subject for id"},
	{"wait", "hook", "hook: <token>", "token key correlation correlation_id correlation_key"},
	{"wait", "hook", "hook: true, public: true", "webhook callback url"},
	{"wait", "from", "from: <node that has the hook>", "of source reuse"},
	{"wait", "approve", "approve: <what is asked>", "approval question ask prompt approver approvers human"},
	{"wait", "timeout", "timeout: 1h", "timeout_seconds timeout_s deadline expires expires_in"},
	{"wait", "count", "count: 3", "n times expect expected min_count batch_size"},
	{"wait", "until", "until: <expression of payload or payloads>", "condition while predicate stop_when"},
	{"wait", "hold", "hold: true", "keep exclusive persist"},
	{"wait", "retain", "retain: 1h", "ttl retention keep_for"},
	{"wait", "takeover", "takeover: true", "take_over steal preempt force"},
	{"wait", "on_unread", "on_unread: restart", "on_end unread leftovers continue_as_new"},
	{"wait", "public", "public: true", "http open"},
	{"wait", "respond", "respond: {with: <answer>}", "response reply answer"},
	{"wait", "metadata", "metadata: {...}", "meta annotations info"},
	{"wait", "tags", "tags: {<key>: <value>}", "labels"},
	{"wait.respond", "status", "status: 200", "code status_code"},
	{"wait.respond", "with", "with: <answer>", "body data json text content"},
	{"release", "hook", "hook: <node that has the hook>", "node name token wait from of"},
	{"release", "unread", "unread: drain", "on_unread mode policy drain take discard"},
	{"respond", "to", "to: <wait>", "node wait of from hook"},
	{"respond", "status", "status: 200", "code status_code"},
	{"respond", "with", "with: <answer>", "body data json text content payload value"},
	{"notify", "subject", "subject: <subject>", "topic channel nats request to"},
	{"notify", "stream_subject", "stream_subject: <subject>", "stream jetstream publish"},
	{"notify", "url", "url: https://...", "uri href endpoint webhook webhooks http callback"},
	{"notify", "function", "function: <function>", "call func fn"},
	{"notify", "secret", "secret: <name of the secret>", "secrets key signing_key"},
	{"notify", "max_attempts", "max_attempts: 10", "attempts retry retries max_retries"},
	{"notify", "max_age", "max_age: 24h", "ttl expires deadline give_up_after"},
	{"notify", "", "leave it out: a start with reply_to, sent to the API, has its caller's session told", "reply_to session seal template"},
	{"sleep", "for", "for: 5m", "duration seconds minutes hours time delay"},
	{"run", "workflow", "workflow: <name>", "name id flow workflow_id"},
	{"run", "definition", "definition: {nodes: {...}, output: {...}}", "nodes steps inline"},
	{"run", "definition", "definition: {program: <name>}", "program"},
	{"compensate", "input", "input: {with: {...}}", "args arguments params parameters data payload"},
	{"compensate", "call", "call: <function>", "function func task action run"},
	{"the contract of an output", "schema", "schema: {...}", "properties required items json_schema"},
}

// spelled is the advice for a spelling of another system, or "".
func (s *shape) spelled(f *form, t *tree, name string) string {
	i := slices.IndexFunc(spellings, func(sp spelling) bool {
		return sp.form == f.name && slices.Contains(strings.Fields(sp.words), name)
	})
	if i < 0 {
		return ""
	}
	sp := spellings[i]
	if sp.key == "" {
		return sp.write
	}
	if f.name == nodeName {
		if fix := refusal(t, sp.key); fix != "" {
			return fix
		}
	}
	if i := slices.IndexFunc(f.keys, func(k key) bool { return k.name == sp.key && !k.fits(t) }); i >= 0 {
		return "leave it out: the code of the program does that"
	}
	if t.get(sp.key) != nil {
		return fmt.Sprintf("it looks like %s, which is there already: put it into that, or leave it out", sp.key)
	}
	return s.mean(sp.key) + " Write " + sp.write
}
