package drover

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Definition is a workflow as data: nodes, what each needs, how its input is
// made, and what the run gives in the end. ParseDefinition makes one; one that
// it returned is valid, and stays so only while nobody changes it.
type Definition struct {
	Version          int              `json:"version,omitempty"` // 1
	Name             WorkflowName     `json:"name,omitempty"`    // needed only to register it
	InputSchema      json.RawMessage  `json:"input_schema,omitempty"`
	Timeout          Duration         `json:"timeout,omitempty"`      // of the whole run; 0: none
	MaxParallel      int              `json:"max_parallel,omitempty"` // calls of the run in flight; 0: DefaultMaxParallel
	DefaultFunctions *Functions       `json:"default_functions,omitempty"`
	Notify           NotifyList       `json:"notify,omitempty"` // who is told the outcome of every run, before those of its start
	Nodes            map[NodeID]*Step `json:"nodes,omitempty"`
	Output           *Source          `json:"output,omitempty"` // From one node, or With

	// Of a program, which has no nodes and no output: code gives them.

	Program        string   `json:"program,omitempty"`         // its name: a token of letters, digits, - or _
	ComputeTimeout Duration `json:"compute_timeout,omitempty"` // of the time that its body is driven, all drives together; 0: none
	MaxDrives      int      `json:"max_drives,omitempty"`      // without progress; 0: 100
	VersionWait    Duration `json:"version_wait,omitempty"`    // for a process of the version of a run, where none is there; 0: 1 min
	Retry          *Retry   `json:"retry,omitempty"`           // of drives that panicked; nil: 3 attempts
}

// Kind says how a node does its work.
type Kind string

// The kinds of node.
const (
	KindCall    Kind = "call"    // a function, by the work queue
	KindRequest Kind = "request" // a NATS service, by request and reply
	KindHTTP    Kind = "http"
	KindAgent   Kind = "agent" // the function `agent`, with the node as its input
	KindSleep   Kind = "sleep"
	KindWait    Kind = "wait"    // a delivery to the run
	KindRun     Kind = "run"     // a child run
	KindSet     Kind = "set"     // an expression
	KindRelease Kind = "release" // the end of a hook that the run holds
	KindRespond Kind = "respond" // an answer to whoever sent a delivery by HTTP
)

// Step is a node of a definition. Exactly one of its kinds is set.
type Step struct {
	Call    FunctionName `json:"call,omitempty"`
	Request string       `json:"request,omitempty"` // a subject
	HTTP    *HTTP        `json:"http,omitempty"`
	Agent   *Agent       `json:"agent,omitempty"`
	Sleep   *Sleep       `json:"sleep,omitempty"`
	Wait    *Wait        `json:"wait,omitempty"`
	Run     *RunStep     `json:"run,omitempty"`
	Set     *Set         `json:"set,omitempty"`
	Release *Release     `json:"release,omitempty"`
	Respond *Respond     `json:"respond,omitempty"`

	Input      *Source     `json:"input,omitempty"` // nil: run_input for a node that needs nothing, else null
	DependsOn  []NodeID    `json:"depends_on,omitempty"`
	Fanout     *Fanout     `json:"fanout,omitempty"`
	When       string      `json:"when,omitempty"` // an expression; false: skipped
	Require    Require     `json:"require,omitempty"`
	Retry      *Retry      `json:"retry,omitempty"`
	Timeout    Duration    `json:"timeout,omitempty"`   // of each attempt; 0: DefaultTimeout for calls, none for waits
	Heartbeat  Duration    `json:"heartbeat,omitempty"` // 0: not watched
	OnError    OnError     `json:"on_error,omitempty"`
	Output     *Contract   `json:"output,omitempty"`
	Compensate *Compensate `json:"compensate,omitempty"`
}

// Kind gives the kind of the node, or "" where none is set.
func (s *Step) Kind() Kind {
	switch {
	case s.Call != "":
		return KindCall
	case s.Request != "":
		return KindRequest
	case s.HTTP != nil:
		return KindHTTP
	case s.Agent != nil:
		return KindAgent
	case s.Sleep != nil:
		return KindSleep
	case s.Wait != nil:
		return KindWait
	case s.Run != nil:
		return KindRun
	case s.Set != nil:
		return KindSet
	case s.Release != nil:
		return KindRelease
	case s.Respond != nil:
		return KindRespond
	}
	return ""
}

// Source says how a value is made. Exactly one of From and With is set.
// Template goes with From, and only for agents.
type Source struct {
	// From reads values: run_input (also spelled workflow.input), fanout_item,
	// node:<id>, or node:<id>.<path>. A list of nodes makes an object that is
	// keyed by node id.
	From Refs `json:"from,omitzero"`
	// With is any JSON in which every ${{ expression }} in a string is
	// replaced; a string that is one expression becomes its value.
	With json.RawMessage `json:"with,omitempty"`
	// Template is the text that an agent's opening message begins with.
	Template string `json:"template,omitempty"`
}

// Refs is one reference or several; in JSON a string or a list of strings.
// List tells them apart: ["node:a"] makes an object with the key a.
type Refs struct {
	Names []string
	List  bool
}

// MarshalJSON gives a string, or a list.
func (r Refs) MarshalJSON() ([]byte, error) {
	if !r.List && len(r.Names) == 1 {
		return json.Marshal(r.Names[0])
	}
	return json.Marshal(r.Names)
}

// UnmarshalJSON reads a string, or a list.
func (r *Refs) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		r.Names, r.List = make([]string, 1), false
		return json.Unmarshal(data, &r.Names[0])
	}
	r.List = true
	return json.Unmarshal(data, &r.Names)
}

// IsZero reports whether nothing is referred to.
func (r Refs) IsZero() bool { return len(r.Names) == 0 && !r.List }

// Fanout makes one call for each item of an array.
type Fanout struct {
	Over        string `json:"over"`                   // node:<id>[.<path>], run_input[.<path>], or ${{ expression }}
	MaxParallel int    `json:"max_parallel,omitempty"` // items in flight; 0: only the run's own limit
}

// Require says what a node demands of what it needs.
type Require string

// The demands. Without one a node runs once every node that it needs is done,
// was skipped, or failed with on_error: continue; it sees null for the last
// two. After any other failure it is skipped.
const (
	RequireSucceeded Require = "succeeded" // each is done, else the node is skipped
	RequireTerminal  Require = "terminal"  // each is over, however it ended
)

// OnError says what the failure of a node means for its run.
type OnError string

// What a failure may mean. Without one it is OnErrorFail.
const (
	OnErrorFail     OnError = "fail"     // the run fails, if its output needs the node
	OnErrorContinue OnError = "continue" // the node ends failed, the run goes on
)

// Retry is the policy for attempts that ended with an error or a timeout.
// Without one an error is final, and a timeout is tried once more.
type Retry struct {
	MaxAttempts int      `json:"max_attempts,omitempty"` // 0: 3
	Initial     Duration `json:"initial,omitempty"`      // before the second attempt; 0: 1 s
	Factor      float64  `json:"factor,omitempty"`       // from 1; 0: 2
	Max         Duration `json:"max,omitempty"`          // 0: 1 min
}

// Contract is what an output must be.
type Contract struct {
	Type   string          `json:"type"` // text or json
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Compensate undoes a node that was done, when its run fails or is stopped.
type Compensate struct {
	Call    FunctionName `json:"call"`
	Input   *Source      `json:"input,omitempty"` // nil: {"input": the node's, "output": the node's}
	Retry   *Retry       `json:"retry,omitempty"` // nil: that of the node
	Timeout Duration     `json:"timeout,omitempty"`
}

// Functions are name patterns of functions that an agent may, and may not, use.
// In JSON an agent's may be a plain list, which is Allow.
type Functions struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// UnmarshalJSON reads an object, or a list.
func (f *Functions) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &f.Allow)
	}
	type plain Functions
	return json.Unmarshal(data, (*plain)(f))
}

// Agent is an agent's turn: the function `agent` gets all of it.
type Agent struct {
	Model        string     `json:"model"`
	Provider     string     `json:"provider,omitempty"`
	SystemPrompt string     `json:"system_prompt,omitempty"`
	Output       *Contract  `json:"output,omitempty"`
	Functions    *Functions `json:"functions,omitempty"`
}

// HTTP is an HTTP request. URL, header values and Body may hold expressions.
type HTTP struct {
	Method  string            `json:"method,omitempty"` // "": POST with a body or an input, else GET
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"` // nil: the node's input
}

// Sleep is a timer. Exactly one field is set; in JSON a string is For.
type Sleep struct {
	For   Duration `json:"for,omitempty"`
	Until string   `json:"until,omitempty"` // an expression: RFC 3339 text, or seconds since 1970
}

// UnmarshalJSON reads a duration, or an object.
func (s *Sleep) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &s.For)
	}
	type plain Sleep
	return json.Unmarshal(data, (*plain)(s))
}

// RunStep is a child run. Workflow or Definition says of what.
type RunStep struct {
	Workflow   WorkflowName `json:"workflow,omitempty"`
	Definition *Definition  `json:"definition,omitempty"`
	Input      *Source      `json:"input,omitempty"`   // nil: the node's input
	Detach     bool         `json:"detach,omitempty"`  // the node is done once the child is started
	Abandon    bool         `json:"abandon,omitempty"` // the child is not stopped when the node does not wait for it any more
}

// Set computes a value.
type Set struct {
	With json.RawMessage `json:"with"`
}

// Duration is a time.Duration that is spelled like "90s", "1h30m" or "7d".
type Duration time.Duration

// String spells the duration.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText spells the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = v
	return err
}

const day = 24 * time.Hour

// ParseDuration reads a duration: Go's spelling, and whole days in front of it
// ("7d", "1d12h").
func ParseDuration(s string) (Duration, error) {
	rest, total := s, time.Duration(0)
	if days, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%s is no duration: write it like 90s, 1h30m or 7d", quote(s))
		}
		rest, total = after, time.Duration(n)*day
	}
	if rest != "" || total == 0 {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("%s is no duration: write it like 90s, 1h30m or 7d", quote(s))
		}
		total += d
	}
	return Duration(total), nil
}
