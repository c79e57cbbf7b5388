package sim

// Seen counts what happened of the lines of the cases of deliveries and programs: a line, a
// space, and what happened.
type Seen map[string]int

// saw notes that something happened of which a line speaks.
func (w *World) saw(what string) { w.seen[what]++ }

// Add adds what was seen in another world.
func (s Seen) Add(o Seen) {
	for what, n := range o {
		s[what] += n
	}
}
