package machine

import (
	"hash/fnv"
	"math"
	"time"

	"github.com/droverhq/drover"
)

// pause says whether another attempt follows one that ended without success,
// and after which pause. used counts the attempts that used up the budget, with
// this one; next is the id of the attempt that would follow.
func (p policy) pause(next drover.CallID, used int, err *drover.Error, how ending) (time.Duration, bool) {
	switch {
	case how == byLoss:
		return 0, true
	case how == byCancel, err.Permanent:
		return 0, false
	case !p.set:
		return 0, how == byTimeout && used == 1
	case used >= p.max:
		return 0, false
	case err.RetryAfter > 0:
		return time.Duration(err.RetryAfter), true
	}
	grown := float64(p.initial) * math.Pow(p.factor, float64(used-1))
	return jitter(time.Duration(min(grown, float64(p.most))), next.String()), true
}

// jitter moves a pause by up to a tenth either way, always the same for the
// same id, so that what failed together does not come back together.
func jitter(d time.Duration, id string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	share := float64(h.Sum32()%2001)/1000 - 1 // -1 to 1
	return d + time.Duration(float64(d)*share/10)
}
