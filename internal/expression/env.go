package expression

// Want says what an expression must give.
type Want int

// What may be wanted.
const (
	Any  Want = iota
	Bool      // true or false, nothing else
)

// Scope says which names an expression may use, besides input and run.
type Scope struct {
	Nodes   map[string]bool // the ids of the nodes that exist
	Item    bool            // item and index: the node is a fan-out
	Payload bool            // payload and payloads: it is asked after each delivery to a wait
}

// Env is what an expression reads. Values in it are as Decode makes them, and
// are never changed.
type Env struct {
	Input    any
	Nodes    map[string]Node // at least those that Nodes of the expression lists
	Item     any
	Index    int
	Payload  any // of the latest delivery
	Payloads any // a list of all that were read, the latest included
	Run      Run
}

// Node is what an expression sees of a node.
type Node struct {
	Output any    `expr:"output"` // null unless it is done
	Status string `expr:"status"` // a drover.NodeStatus
	Error  any    `expr:"error"`  // null unless it failed
}

// Run is what an expression sees of its run.
type Run struct {
	ID        string
	Workflow  string // "" for a definition without a name
	Tags      map[string]string
	StartedAt string // RFC 3339
}

// frame is the Env as the virtual machine sees it. The name of the meter is
// one that no source can spell.
type frame struct {
	Input    any             `expr:"input"`
	Nodes    map[string]Node `expr:"nodes"`
	Item     any             `expr:"item"`
	Index    int             `expr:"index"`
	Payload  any             `expr:"payload"`
	Payloads any             `expr:"payloads"`
	Run      runView         `expr:"run"`
	Meter    *meter          `expr:"meter!"`
}

// runView is a Run whose missing tags are null.
type runView struct {
	ID        string         `expr:"id"`
	Workflow  string         `expr:"workflow"`
	Tags      map[string]any `expr:"tags"`
	StartedAt string         `expr:"started_at"`
}

const meterName = "meter!"

// The names that an expression begins from, and the fields of two of them.
var (
	rootNames    = []string{"input", "nodes", "item", "index", "run"}
	payloadNames = []string{"payload", "payloads"} // where the scope has them
	nodeFields   = []string{"output", "status", "error"}
	runFields    = []string{"id", "workflow", "tags", "started_at"}
)

func newFrame(env *Env, m *meter, tags bool) *frame {
	f := &frame{
		Input: env.Input, Nodes: env.Nodes, Item: env.Item, Index: env.Index, Meter: m,
		Payload: env.Payload, Payloads: env.Payloads,
		Run: runView{ID: env.Run.ID, Workflow: env.Run.Workflow, StartedAt: env.Run.StartedAt},
	}
	if tags {
		f.Run.Tags = make(map[string]any, len(env.Run.Tags))
		for k, v := range env.Run.Tags {
			f.Run.Tags[k] = v
		}
	}
	return f
}
