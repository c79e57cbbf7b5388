package drover

import "time"

// The grammar of a definition, said once: which keys there are, where, and
// what each may hold. shape.go walks a tree along it; a key that is not here
// is an error, and one that is somewhere else is told where it belongs.

// form is what a value may be.
type form struct {
	name   string // how it is called in "X belongs to <name>"
	kind   treeKind
	any    bool // everything goes
	keys   []key
	each   *form                   // of the entries of an object without keys, or of a list
	filled bool                    // the list must not be empty
	free   bool                    // keys that are not known are data, and go into with
	or     *form                   // another kind of value that will do
	words  []string                // the texts that are allowed
	blank  bool                    // the text may be empty
	text   func(string) *Problem   // what else a text must be
	number *limits                 // of a number
	check  func(s *shape, t *tree) // what no table can say
	why    string                  // what to write where the kind is wrong
}

// key is an entry of an object.
type key struct {
	name string
	form *form
	need string // the fix, where it must be there
	with string // it goes only with this key beside it
	sans string // it does not go with this key, and need not be there where that is
}

// limits are what a number must be.
type limits struct {
	least, most float64
	whole       bool
}

// The names of the forms that are asked for.
const (
	definitionName = "the definition"
	nodeName       = "the node"
)

const (
	maxDuration = 365 * day
	minDuration = time.Millisecond

	// minVersionWait is long enough for each of the looks for who serves a version to
	// be over before the next.
	minVersionWait = 6 * time.Second
)

// grammar is the form of a definition. It is built when it is asked for, as it
// holds itself.
func grammar() *form {
	definition := &form{name: definitionName, kind: isObject, check: checkDefinition, why: "write {nodes: {...}, output: {...}}"}
	definition.keys = []key{
		{name: "version", form: &form{kind: isNumber, number: &limits{1, 1, true}, why: "write 1"}},
		{name: "name", form: textForm(textOf(ParseWorkflowName))},
		{name: "input_schema", form: schemaForm()},
		{name: "timeout", form: durationForm()},
		{name: "max_parallel", form: countForm(MaxCalls), sans: program},
		{name: "default_functions", form: functionsForm()},
		{name: "notify", form: notifyForm()},
		{name: "nodes", form: nodesForm(definition), need: "add nodes: {<id>: {call: <function>}}", sans: program},
		{name: "output", form: outputForm(), need: "add output: {from: node:<id>}", sans: program},
		{name: program, form: &form{kind: isText, text: programText, why: "write the name that the program is served under"}},
		{name: "compute_timeout", form: durationForm(), with: program},
		{name: "max_drives", form: countForm(maxDrives), with: program},
		{name: "version_wait", form: &form{kind: isText, text: versionWaitText, why: "write it like 90s, 1h30m or 7d"}, with: program},
		{name: "retry", form: retryForm(), with: program},
	}
	return definition
}

// program is the key that makes a definition one of a program: it has no nodes
// then, and a few keys of its own.
const program = "program"

// maxDrives is how many drives without progress a definition may allow.
const maxDrives = 100_000

// fits reports whether t may have the key, as far as that depends on what stands
// beside it.
func (k *key) fits(t *tree) bool {
	return (k.with == "" || t.get(k.with) != nil) && (k.sans == "" || t.get(k.sans) == nil)
}

func nodesForm(definition *form) *form {
	return &form{name: "nodes", kind: isObject, each: nodeForm(definition), check: checkNodes, why: "write {<id>: {...}}"}
}

func nodeForm(definition *form) *form {
	node := &form{name: nodeName, kind: isObject, check: checkNode, why: "write {call: <function>}, or another kind of node"}
	node.keys = []key{
		{name: "call", form: &form{kind: isText, text: functionText, why: "write the name of the function; what it gets goes into input"}},
		{name: "request", form: textForm(subjectText)},
		{name: "http", form: httpForm()},
		{name: "agent", form: agentForm()},
		{name: "sleep", form: sleepForm()},
		{name: "wait", form: waitForm()},
		{name: "run", form: runForm(definition)},
		{name: "set", form: &form{name: "set", kind: isObject, free: true, why: "write {with: ...}", keys: []key{
			{name: "with", form: anyForm(), need: "add with: the value, or ${{ expressions }}"},
		}}},
		{name: "release", form: releaseForm()},
		{name: "respond", form: respondForm()},
		{name: "input", form: inputForm("input")},
		{name: "depends_on", form: &form{kind: isList, each: textForm(textOf(ParseNodeID)), why: "write [<node>, <node>]"}},
		{name: "fanout", form: &form{name: "fanout", kind: isObject, why: "write {over: node:<id>.<path>}", keys: []key{
			{name: "over", form: textForm(nil), need: "add over: node:<id>.<path>"},
			{name: "max_parallel", form: countForm(MaxCalls)},
		}}},
		{name: "when", form: textForm(nil)},
		{name: "require", form: wordForm(string(RequireSucceeded), string(RequireTerminal))},
		{name: "retry", form: retryForm()},
		{name: "timeout", form: durationForm()},
		{name: "heartbeat", form: durationForm()},
		{name: "on_error", form: wordForm(string(OnErrorFail), string(OnErrorContinue))},
		{name: "output", form: contractForm()},
		{name: "compensate", form: &form{name: "compensate", kind: isObject, why: "write {call: <function>}", keys: []key{
			{name: "call", form: textForm(functionText), need: "add call: the function that undoes the node"},
			{name: "input", form: inputForm("input")},
			{name: "retry", form: retryForm()},
			{name: "timeout", form: durationForm()},
		}}},
	}
	return node
}

func httpForm() *form {
	return &form{name: "http", kind: isObject, why: "write {url: https://...}", keys: []key{
		{name: "method", form: textForm(methodText)},
		{name: "url", form: textForm(urlText), need: "add url: https://..."},
		{name: "headers", form: &form{name: "headers", kind: isObject, each: &form{kind: isText, blank: true}, why: "write {<name>: <value>, <name>: <value>}"}},
		{name: "body", form: anyForm()},
	}}
}

func agentForm() *form {
	return &form{name: "agent", kind: isObject, why: "write {model: <model>}", keys: []key{
		{name: "model", form: textForm(nil), need: "add model: the model of the agent"},
		{name: "provider", form: textForm(nil)},
		{name: "system_prompt", form: &form{kind: isText, blank: true}},
		{name: "output", form: contractForm()},
		{name: "functions", form: functionsForm()},
	}}
}

func sleepForm() *form {
	return &form{
		name: "sleep", kind: isObject, or: durationForm(), check: oneOf("for", "until"),
		why: "write it like 5m, or {until: <expression>}",
		keys: []key{
			{name: "for", form: durationForm()},
			{name: "until", form: textForm(nil)},
		},
	}
}

func runForm(definition *form) *form {
	return &form{
		name: "run", kind: isObject, check: checkRun,
		why: "write {workflow: <name>}, or {definition: {...}}",
		keys: []key{
			{name: "workflow", form: textForm(textOf(ParseWorkflowName))},
			{name: "definition", form: definition},
			{name: "input", form: inputForm("input")},
			{name: "detach", form: &form{kind: isBool}},
			{name: "abandon", form: &form{kind: isBool}},
		},
	}
}

// inputForm is a Source; outputForm is the one of a definition.
func inputForm(name string) *form {
	return &form{
		name: name, kind: isObject, check: oneOf("from", "with"), free: true,
		why: "write {from: node:<id>}, or {with: {...}}",
		keys: []key{
			{name: "from", form: &form{
				kind: isText, text: refText, why: "write run_input, fanout_item, node:<id> or a list of nodes",
				or: &form{kind: isList, each: &form{kind: isText, text: nodeRefText}, filled: true, why: "write [node:<id>, node:<id>]"},
			}},
			{name: "with", form: anyForm()},
			{name: "template", form: &form{kind: isText, blank: true}},
		},
	}
}

func outputForm() *form {
	return &form{
		name: "the output of the definition", kind: isObject, check: oneOf("from", "with"), free: true,
		why: "write {from: node:<id>}, or {with: {...}}",
		keys: []key{
			{name: "from", form: &form{kind: isText, text: nodeRefText, why: "write node:<id>; several nodes go into with"}},
			{name: "with", form: anyForm()},
		},
	}
}

func retryForm() *form {
	return &form{name: "retry", kind: isObject, why: "write {max_attempts: 3}", check: checkRetry, keys: []key{
		{name: "max_attempts", form: countForm(1000)},
		{name: "initial", form: durationForm()},
		{name: "factor", form: &form{kind: isNumber, number: &limits{1, 100, false}}},
		{name: "max", form: durationForm()},
	}}
}

func contractForm() *form {
	return &form{name: "the contract of an output", kind: isObject, why: "write {type: json, schema: {...}}", check: checkContract, keys: []key{
		{name: "type", form: wordForm("text", "json"), need: "add type: json or type: text"},
		{name: "schema", form: schemaForm()},
	}}
}

func functionsForm() *form {
	patterns := &form{kind: isList, each: textForm(nil), why: "write a list of patterns"}
	return &form{name: "functions", kind: isObject, or: patterns, why: "write {allow: [...], deny: [...]}", keys: []key{
		{name: "allow", form: patterns},
		{name: "deny", form: patterns},
	}}
}

func anyForm() *form { return &form{any: true} }

func textForm(check func(string) *Problem) *form {
	return &form{kind: isText, text: check}
}

func wordForm(words ...string) *form { return &form{kind: isText, words: words} }

func countForm(most int) *form {
	return &form{kind: isNumber, number: &limits{1, float64(most), true}}
}

func durationForm() *form {
	return &form{kind: isText, text: durationText, why: "write it like 90s, 1h30m or 7d"}
}

func schemaForm() *form {
	return &form{name: "a JSON Schema", kind: isObject, each: anyForm(), or: &form{kind: isBool}, why: "write a JSON Schema"}
}

// The keys of a node that say its kind.
var kinds = []string{"call", "request", "http", "agent", "sleep", "wait", "run", "set", "release", "respond"}

// rare are the kinds that nobody means who writes a key of theirs into a node
// without a kind, if another part has such a key.
var rare = []string{"release", "respond"}

// misfits are the keys that some kinds of node have no use for, with what
// would do instead.
var misfits = map[string]map[string]string{
	"input": {
		"sleep": "leave it out", "wait": "leave it out: a wait gives what is delivered", "set": "write it into set.with",
		"release": "leave it out", "respond": "write it into respond.with",
	},
	"fanout": {
		"sleep": "sleep before or after the fan-out", "wait": "give every delivery a wait of its own, or fan out over runs that wait",
		"release": "give every hook a release of its own", "respond": "give every wait a respond of its own",
	},
	"retry": {
		"sleep": "leave it out", "wait": "leave it out: a wait cannot be tried again", "set": "leave it out: it would give the same again",
		"release": "leave it out: it would fail the same again", "respond": "leave it out: it does not fail",
	},
	"timeout": {
		"sleep": "leave it out", "set": "leave it out: it takes no time",
		"release": "leave it out: it takes no time", "respond": "leave it out: it takes no time",
	},
	"heartbeat": {
		"request": "use timeout", "http": "use timeout", "sleep": "leave it out", "wait": "use timeout", "run": "use timeout", "set": "leave it out",
		"release": "leave it out", "respond": "leave it out",
	},
	"output": {
		"sleep": "leave it out: it gives null", "wait": "use wait.schema",
		"release": "leave it out", "respond": "leave it out: it gives null",
	},
	"compensate": {
		"sleep": nothingToUndo, "wait": nothingToUndo, "release": "leave it out: a token cannot be taken back", "respond": "leave it out: an answer cannot be taken back",
	},
}

const nothingToUndo = "leave it out: there is nothing to undo"
