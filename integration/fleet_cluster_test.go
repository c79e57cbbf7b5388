package integration_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
)

// Three servers that keep everything three times, as docker-compose.yml has
// them: one is killed, the leader of the commands steps down, one is frozen and
// goes on, and then each is restarted. Runs are started all the time, and not one
// whose start was acknowledged is lost.
func TestFaults11Cluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	servers := readCompose(t)
	for _, name := range servers.names {
		servers.up(name)
	}
	for _, name := range servers.names {
		servers.healthy(ctx, name)
	}
	near, killed, frozen := servers.names[0], servers.names[1], servers.names[2]
	f := connect(t, servers.url(near))
	var all []string
	for _, name := range servers.names {
		all = append(all, servers.url(name))
	}
	c := newCrew(f, 3, "--replicas", "3", "--nats", strings.Join(all, ","))
	w := newToil(f)
	enough := w.beneath(60)
	const more = 20 // runs that must end before the next thing happens
	w.goesOn(more)

	servers.servers[killed].kill()
	w.goesOn(more)
	servers.up(killed)
	servers.healthy(ctx, killed)

	before := f.leader(ctx)
	if _, err := f.nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+names.Commands(), nil); err != nil {
		t.Fatal(err)
	}
	until(t, "another leader than "+before, func() bool { now := f.leader(ctx); return now != "" && now != before })
	w.goesOn(more)

	servers.servers[frozen].signal(syscall.SIGSTOP)
	w.goesOn(more)
	servers.servers[frozen].signal(syscall.SIGCONT)
	servers.healthy(ctx, frozen)
	w.goesOn(more)
	if !testing.Short() {
		for _, name := range servers.names {
			servers.servers[name].signal(syscall.SIGTERM)
			servers.servers[name].wait()
			servers.up(name)
			servers.healthy(ctx, name)
			w.goesOn(more)
		}
	}
	enough()
	c.settled()
	w.allTold()
	w.check()
	t.Logf("%d runs", len(w.runs))
}

func (c *compose) url(name string) string { return "nats://" + c.address[name+":4222"] }

// leader is the server that leads the stream of commands; "": none does.
func (f *fleet) leader(ctx context.Context) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	s, err := f.js.Stream(ctx, names.Commands())
	if err != nil {
		return ""
	}
	return s.CachedInfo().Cluster.Leader
}
