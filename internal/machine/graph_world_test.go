package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// graph is a random definition of calls, fan-outs, sleeps, waits, children and
// sets, and what a dumb model knows of it.
type graph struct {
	text  string
	nodes []gnode // in an order in which each comes after what it needs
}

type gnode struct {
	id             string
	deps           []int
	require        string
	continues, fan bool
	kind           string
	fails          bool // its calls do, always
	hook           int  // of from and release: the node whose hook it is
}

// With wild, hooks have tokens in common, and are released.
func makeGraph(d *dice, wild bool) graph {
	var g graph
	var b strings.Builder
	b.WriteString(`{"max_parallel":` + fmt.Sprint(1+d.roll(4)) + `,"nodes":{`)
	count := 2 + d.roll(7)
	for i := range count {
		n := gnode{id: fmt.Sprintf("n%d", i), kind: []string{"call", "call", "call", "set", "sleep", "wait", "run"}[d.roll(7)]}
		for j := range i {
			if d.roll(3) == 1 {
				n.deps = append(n.deps, j)
			}
		}
		n.hooks(d, &g, wild)
		n.require = []string{"", "", "succeeded", "terminal"}[d.roll(4)]
		n.continues = d.roll(4) == 1
		n.fails = d.roll(4) == 1 && (n.kind == "call" || n.kind == "run")
		n.fan = d.roll(4) == 1 && n.kind == "call"
		g.nodes = append(g.nodes, n)
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(n.json(d, wild))
	}
	fmt.Fprintf(&b, `},"output":{"with":["${{ nodes.n%d.output }}","${{ nodes.n%d.status }}"]}}`, count-1, d.roll(count))
	g.text = b.String()
	return g
}

// hooks makes some nodes hooks, and what belongs to them.
func (n *gnode) hooks(d *dice, g *graph, wild bool) {
	switch d.roll(6) {
	case 1:
		n.kind = "hook"
	case 2, 3:
		n.kind = []string{"from", "from", "release"}[d.roll(3)]
		if !wild {
			n.kind = "from"
		}
		for j := range g.nodes {
			if g.nodes[j].kind == "hook" {
				n.hook = j + 1
			}
		}
		if n.hook--; n.hook < 0 {
			n.kind = "hook"
		} else if !slices.Contains(n.deps, n.hook) {
			n.deps = append(n.deps, n.hook)
		}
	}
}

func (n *gnode) hookJSON(d *dice, wild bool) any {
	m := map[string]any{"hook": n.id, "hold": true}
	if wild && d.roll(3) == 1 {
		m["hook"] = "t0"
	}
	if d.roll(2) == 1 {
		m["on_unread"] = "restart"
	}
	if wild && d.roll(4) == 1 {
		m["timeout"] = "7s"
	}
	if d.roll(3) == 1 {
		m["count"] = 1 + d.roll(3)
	}
	return m
}

func (n *gnode) json(d *dice, wild bool) string {
	m := map[string]any{}
	if len(n.deps) > 0 {
		var deps []string
		for _, j := range n.deps {
			deps = append(deps, fmt.Sprintf("n%d", j))
		}
		m["depends_on"] = deps
	}
	if n.require != "" {
		m["require"] = n.require
	}
	if n.continues {
		m["on_error"] = "continue"
	}
	if n.fan {
		m["fanout"] = map[string]any{"over": "run_input", "max_parallel": 1 + d.roll(3)}
	}
	switch n.kind {
	case "call":
		m["call"], m["timeout"] = []string{"f", "g"}[d.roll(2)], "20s"
		if d.roll(2) == 1 {
			m["retry"] = map[string]any{"max_attempts": 1 + d.roll(3), "initial": "5s"}
		}
		if d.roll(3) == 1 {
			m["heartbeat"] = "5s"
		}
		if d.roll(3) == 1 {
			m["compensate"] = map[string]any{"call": []string{"f", "u"}[d.roll(2)]}
		}
	case "set":
		m["set"] = map[string]any{"with": "${{ len(input) }}"}
	case "sleep":
		m["sleep"] = "10s"
	case "wait":
		m["wait"] = map[string]any{"name": []string{"x", "y"}[d.roll(2)]}
	case "run":
		m["run"] = map[string]any{"workflow": "sub"}
	case "hook":
		m["wait"] = n.hookJSON(d, wild)
	case "from":
		m["wait"] = map[string]any{"from": fmt.Sprintf("n%d", n.hook), "until": "len(payloads) > 1 || payload == 3"}
	case "release":
		m["release"] = map[string]any{"hook": fmt.Sprintf("n%d", n.hook), "unread": []string{"drain", "take", "discard"}[d.roll(3)]}
	}
	data, _ := json.Marshal(m)
	return `"` + n.id + `":` + string(data)
}
