package machine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/expression"
	"github.com/droverhq/drover/internal/schema"
)

// Plan is a definition that was made ready to run. It is immutable, and safe
// for concurrent use.
type Plan struct {
	Definition *drover.Definition
	Hash       drover.Hash
	Name       drover.WorkflowName // "": the definition has none
	Canonical  []byte              // the definition as JSON, which Hash is of
	// Warnings of the definition, for whoever starts it; Compile leaves them out,
	// as a run has no use for them.
	Warnings []drover.Problem

	nodes       []*node // each after what it needs
	index       map[drover.NodeID]int
	input       *schema.Schema // of the run; nil: any
	output      *source
	maxParallel int
	needed      int                          // how many nodes are
	waits       map[string][]*node           // by the name of the delivery
	claimers    []*node                      // waits that claim a token
	undoes      map[drover.FunctionName]bool // functions of compensations
}

// node is a step of a definition, compiled.
type node struct {
	id     drover.NodeID
	at     int
	step   *drover.Step
	kind   drover.Kind
	deps   []int // what it needs, ascending
	users  []int // what needs it, ascending
	needed bool  // the output needs it
	vital  bool  // its failure fails the run, unless its on_error says otherwise

	function  drover.FunctionName // of calls, also of those that workers serve
	timeout   time.Duration       // of an attempt; 0: none
	heartbeat time.Duration
	retry     policy

	when       *formula
	over       *source // of a fan-out
	input      *source
	set        *formula
	until      *formula
	http       *formula
	contract   *drover.Contract
	schema     *schema.Schema  // of the output
	payload    *schema.Schema  // of the delivery to a wait
	approval   *schema.Schema  // of a delivery that is a yes or no
	hook       *hookPlan       // of a wait that claims a token
	target     int             // the node whose hook this node reads, releases, or whose deliveries it answers; of one with hook: itself
	sharers    []int           // waits that read the hook of this node
	answered   bool            // a node answers what this wait has read
	answer     *formula        // of a respond node
	child      json.RawMessage // definition of the child, as canonical JSON
	childInput *source
	undo       *undoPlan
}

// undoPlan is the compensation of a node.
type undoPlan struct {
	function drover.FunctionName
	input    *source // nil: input and output of the node
	retry    policy
	timeout  time.Duration
}

// policy is drover.Retry with its defaults.
type policy struct {
	set     bool // false: an error is final, a timeout is tried once more
	max     int
	initial time.Duration
	factor  float64
	most    time.Duration
}

func (n *node) fans() bool      { return n.step.Fanout != nil }
func (n *node) continues() bool { return n.step.OnError == drover.OnErrorContinue }

// hooked reports whether the node is a wait for deliveries to a token.
func (n *node) hooked() bool { return n.step.Wait != nil && n.step.Wait.Name == "" }

// calls reports whether an attempt of the node is a message to a function.
func (n *node) calls() bool { return n.function != "" }

// Compile makes the plan of a definition. What drover.ParseDefinition accepts
// compiles; its error is a *drover.Error.
func Compile(def *drover.Definition) (*Plan, error) {
	data, hash, err := def.Canonical()
	if err != nil {
		return nil, drover.AsError(err, drover.CodeInvalidDefinition)
	}
	p := &Plan{
		Definition: def, Hash: hash, Name: def.Name, Canonical: data,
		index: map[drover.NodeID]int{}, waits: map[string][]*node{}, undoes: map[drover.FunctionName]bool{},
		maxParallel: def.MaxParallel,
	}
	if p.maxParallel == 0 {
		p.maxParallel = drover.DefaultMaxParallel
	}
	if def.Program != "" {
		return p, p.compileInput()
	}
	if err := p.compile(); err != nil {
		return nil, drover.AsError(err, drover.CodeInvalidDefinition)
	}
	return p, nil
}

func (p *Plan) compile() error {
	known := map[string]bool{}
	for id := range p.Definition.Nodes {
		known[string(id)] = true
	}
	reads := map[drover.NodeID]map[drover.NodeID]bool{}
	compiled := map[drover.NodeID]*node{}
	for id, step := range p.Definition.Nodes {
		c := compiler{known: known, reads: map[drover.NodeID]bool{}}
		n, err := c.node(id, step)
		if err != nil {
			return fmt.Errorf("node %s: %w", id, err)
		}
		delete(c.reads, id) // a compensation may read its own node
		compiled[id], reads[id] = n, c.reads
	}
	if err := p.order(compiled, reads); err != nil {
		return err
	}
	if err := p.compileInput(); err != nil {
		return err
	}
	if p.Definition.Output == nil {
		return fmt.Errorf("it has no output: write output: {from: node:<id>}")
	}
	var err error
	c := compiler{known: known, reads: map[drover.NodeID]bool{}}
	if p.output, err = c.source(p.Definition.Output); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	p.close(c.reads)
	return nil
}

func (p *Plan) compileInput() (err error) {
	if p.Definition.InputSchema == nil {
		return nil
	}
	if p.input, err = schema.Compile(p.Definition.InputSchema); err != nil {
		return drover.AsError(fmt.Errorf("input_schema: %w", err), drover.CodeInvalidDefinition)
	}
	return nil
}

// compiler compiles one node, and gathers what it reads.
type compiler struct {
	known map[string]bool
	item  bool
	reads map[drover.NodeID]bool
}

func (c *compiler) scope() expression.Scope {
	return expression.Scope{Nodes: c.known, Item: c.item}
}

func (c *compiler) node(id drover.NodeID, step *drover.Step) (*node, error) {
	n := &node{id: id, step: step, kind: step.Kind(), function: function(step), heartbeat: time.Duration(step.Heartbeat)}
	for _, dep := range step.DependsOn {
		c.reads[dep] = true
	}
	n.retry = newPolicy(step.Retry)
	n.timeout = time.Duration(step.Timeout)
	if n.timeout == 0 && n.calls() {
		n.timeout = drover.DefaultTimeout
	}
	var err error
	if step.When != "" {
		if n.when, err = c.expression(step.When, expression.Bool); err != nil {
			return nil, fmt.Errorf("when: %w", err)
		}
	}
	if step.Fanout != nil {
		if n.over, err = c.over(step.Fanout.Over); err != nil {
			return nil, fmt.Errorf("fanout.over: %w", err)
		}
	}
	c.item = step.Fanout != nil
	if step.Input != nil {
		if n.input, err = c.source(step.Input); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
	}
	if err := c.kind(n); err != nil {
		return nil, err
	}
	if n.input == nil {
		n.input = c.standard()
	}
	if step.Compensate != nil {
		if n.undo, err = c.compensation(step); err != nil {
			return nil, fmt.Errorf("compensate: %w", err)
		}
	}
	return n, c.contract(n)
}

// standard is the input of a node that says nothing of it.
func (c *compiler) standard() *source {
	switch {
	case c.item:
		return &source{refs: []drover.Ref{{Kind: drover.RefItem}}}
	case len(c.reads) == 0:
		return &source{refs: []drover.Ref{{Kind: drover.RefInput}}}
	}
	return &source{}
}

func (c *compiler) contract(n *node) (err error) {
	n.contract = n.step.Output
	if n.step.Agent != nil && n.step.Agent.Output != nil {
		n.contract = n.step.Agent.Output
	}
	if n.contract != nil && n.contract.Schema != nil {
		if n.schema, err = schema.Compile(n.contract.Schema); err != nil {
			return fmt.Errorf("output.schema: %w", err)
		}
	}
	return nil
}

func (c *compiler) compensation(step *drover.Step) (*undoPlan, error) {
	undo := &undoPlan{function: step.Compensate.Call, timeout: time.Duration(step.Compensate.Timeout), retry: newPolicy(step.Retry)}
	if step.Compensate.Retry != nil {
		undo.retry = newPolicy(step.Compensate.Retry)
	}
	if undo.timeout == 0 {
		undo.timeout = drover.DefaultTimeout
	}
	var err error
	if step.Compensate.Input != nil {
		undo.input, err = c.source(step.Compensate.Input)
	}
	return undo, err
}

func newPolicy(r *drover.Retry) policy {
	if r == nil {
		return policy{}
	}
	p := policy{set: true, max: r.MaxAttempts, initial: time.Duration(r.Initial), factor: r.Factor, most: time.Duration(r.Max)}
	if p.max == 0 {
		p.max = 3
	}
	if p.initial == 0 {
		p.initial = time.Second
	}
	if p.factor < 1 {
		p.factor = 2
	}
	if p.most == 0 {
		p.most = time.Minute
	}
	return p
}
