package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// plant is a server, a process with a store, that crashes and comes back.
type plant struct {
	t       testing.TB
	config  string
	address string
	server  *process
}

// ready is what a server says when it can be used.
const ready = "Server is ready"

func newPlant(t testing.TB) *plant {
	t.Helper()
	dir := t.TempDir()
	p := &plant{t: t, address: freeAddress(t), config: filepath.Join(dir, "nats.conf")}
	host, port, err := net.SplitHostPort(p.address)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("host: %q\nport: %s\nmax_payload: 8MB\njetstream {store_dir: %q}\n", host, port, filepath.Join(dir, "data"))
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.up()
	return p
}

func (p *plant) url() string { return "nats://" + p.address }

func (p *plant) up() { p.server = launchServer(p.t, "-c", p.config) }

// The server is killed again and again, at any moment, while workers and
// functions of other processes are at work. They come back by themselves, and
// nothing that was acknowledged is lost.
func TestFleetServerIsKilled(t *testing.T) {
	t.Parallel()
	inFlight, kills := 100, 10
	if testing.Short() {
		kills = 3
	}
	chance := rand.New(rand.NewPCG(choose(t), 2))
	p := newPlant(t)
	f := connect(t, p.url())
	c := newCrew(f, 3)
	w := newToil(f, breeds...)
	enough := w.beneath(inFlight)
	w.goesOn(1)
	for range kills {
		w.live(p.server, ready, chance)
		p.server.kill()
		p.up()
	}
	p.server.line(ready)
	w.goesOn(inFlight)
	enough()
	c.settled()
	w.allTold()
	w.check()
	t.Logf("%d kills, %d runs", kills, len(w.runs))
}

// A worker is killed, and then the server, when others have taken none, some or
// all of the worker's partitions: none of them is left without an owner.
func TestFaults05ServerRestartsInATakeover(t *testing.T) {
	t.Parallel()
	inFlight, rounds := 60, []int{0, 2, 4}
	if testing.Short() {
		rounds = []int{2}
	}
	p := newPlant(t)
	f := connect(t, p.url())
	c := newCrew(f, 3)
	w := newToil(f)
	enough := w.beneath(inFlight)
	for _, taken := range rounds {
		w.goesOn(inFlight / 3)
		dead := c.oldest()
		had := owned(f.placed(), dead)
		moves := f.moves()
		c.kill(dead)
		for range taken {
			for m := await(t, moves.came, "a partition that is taken"); had[m.n].Worker == "" || m.Worker == had[m.n].Worker; {
				m = await(t, moves.came, "a partition that is taken")
			}
		}
		p.server.kill()
		moves.stop()
		p.up()
		now := f.untilPlaces("owners of all partitions who live", func(all map[int]place) bool {
			return len(all) == parts && len(owned(all, dead)) == 0 && len(owned(all, "")) == 0
		})
		if !passedOn(had, now) {
			t.Errorf("worker %s had %v, and now it is %v", dead, had, now)
		}
		w.goesOn(inFlight / 3)
		c.hire()
		c.settled()
	}
	enough()
	w.allTold()
	w.check()
	t.Logf("%d rounds, %d runs", len(rounds), len(w.runs))
}
