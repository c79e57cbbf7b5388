package bench

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// gauge keeps when things ended in a row, and how long they took.
type gauge struct {
	first       time.Time // when the row began
	from, until time.Time // behind the warm-up, and when nothing new begins
	whole       bool      // all counts, from the first to the last
	last        time.Time
	counted     int
	times       []time.Duration
}

func newGauge(now time.Time, opts Options) gauge {
	from := now.Add(opts.Duration / warmShare)
	return gauge{first: now, from: from, until: from.Add(opts.Duration), whole: opts.Runs > 0}
}

// count keeps the time of what ended.
func (g *gauge) count(begun, now time.Time) {
	g.last = now
	if g.whole || !now.Before(g.from) && now.Before(g.until) {
		g.counted++
	}
	if g.whole || !begun.Before(g.from) {
		g.times = append(g.times, now.Sub(begun))
	}
}

// rate is how many ended in a second.
func (g *gauge) rate() float64 {
	length := g.until.Sub(g.from)
	if g.whole {
		length = g.last.Sub(g.first)
	}
	return float64(g.counted) / length.Seconds()
}

// percentiles gives the median, the 99th percentile and the longest of some
// times, in milliseconds. It sorts them.
func percentiles(times []time.Duration) (p50, p99, longest float64) {
	if len(times) == 0 {
		return 0, 0, 0
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		i := min(int(share*float64(len(times))), len(times)-1)
		return float64(times[i]) / float64(time.Millisecond)
	}
	return at(0.5), at(0.99), at(1)
}

// resident is the memory of this process in MiB: what the system says, or where
// it says nothing, what the runtime has.
func resident() float64 {
	const mib = 1 << 20
	data, err := os.ReadFile("/proc/self/statm")
	if fields := bytes.Fields(data); err == nil && len(fields) > 1 {
		if pages, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
			return float64(pages*int64(os.Getpagesize())) / mib
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys) / mib
}

// ticks is how many ticks a second of processor time has in /proc: the same on
// all that Go runs on.
const ticks = 100

// processor is the processor time that this process has used; 0 where the system
// does not say.
func processor() time.Duration {
	data, err := os.ReadFile("/proc/self/stat")
	_, data, ok := bytes.Cut(data, []byte(") ")) // behind the name of the program
	fields := bytes.Fields(data)
	if err != nil || !ok || len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * time.Second / ticks
}
